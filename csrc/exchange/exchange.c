#include "exchange/exchange.h"
#include "exchange/block_bytes.h"
#include "exchange/single_copy.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    HEADER = 64, /* and its alignment in the ring */
    /* The receiver starts when the first piece is there, and it stays in the caches next to the
     * core. */
    PIECE = 64 << 10,
    /* This share of the ring must be free before a piece that does not end the flow is packed:
     * short pieces are packed slowly. */
    SHARE = 8,
    OFFER_MOST = 32,        /* blocks, of the first 64 */
    OFFER_LEAST = 16 << 10, /* bytes of a block */
    SELF_RUN = 2 << 10      /* so long runs are copied one by one */
};

typedef struct header {
    int64_t bytes; /* of all blocks */
    uint64_t call;
    int64_t nests;   /* blocks that the sender offers; PACKED: all of them, packed */
    int64_t offered; /* bytes in them */
    int64_t timed;   /* 1: the sender wants to know how long it takes */
    int64_t process;
    char unused[HEADER - 6 * 8];
} header;

_Static_assert(sizeof(header) == HEADER, "it is passed through the ring as it is");

enum { PACKED = -1 };

static void *heap_get(int64_t bytes)
{
    return malloc((size_t)bytes);
}

static struct {
    void *(*get)(int64_t bytes);
    void (*put)(void *memory);
} memory = {heap_get, free};

void tempi_exchange_use(void *(*get)(int64_t bytes), void (*put)(void *buffer))
{
    memory.get = get;
    memory.put = put;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- a buffer for a piece -------------------------------------------------------------------- */

/* A thread of the program may have a small stack. */
typedef struct piece_buffer {
    char *bytes;
    int64_t size;
    _Alignas(64) char small[4 << 10];
} piece_buffer;

/* For n bytes, which go through it in pieces. */
static void piece_open(piece_buffer *piece, int64_t n)
{
    piece->size = least(n, PIECE);
    piece->bytes = n > (int64_t)sizeof piece->small ? memory.get(piece->size) : NULL;
    if (!piece->bytes) {
        piece->bytes = piece->small;
        piece->size = sizeof piece->small;
    }
}

static void piece_close(piece_buffer *piece)
{
    if (piece->bytes != piece->small)
        memory.put(piece->bytes);
}

/* ---- pieces of blocks ------------------------------------------------------------------------ */

static bool is_offered(const tempi_flow *flow, int64_t block)
{
    return block < 64 && (flow->offered >> block & 1) != 0;
}

/* First the blocks that are not offered; those that are refused in a second pass, whose numbers
 * continue. NULL: there are no more. */
static const tempi_op *block_in_progress(tempi_flow *flow)
{
    for (; flow->block < 2 * flow->n; ++flow->block, flow->done = 0) {
        const bool second = flow->block >= flow->n;
        const int64_t i = second ? flow->block - flow->n : flow->block;
        if (is_offered(flow, i) == second && flow->done < flow->blocks[i].n)
            return &flow->blocks[i];
    }
    return NULL;
}

/* Packs, or unpacks, the next n bytes of the flow, which may be of several blocks. */
static void advance(tempi_flow *flow, char *out, const char *in, int64_t n)
{
    const double start = flow->timed ? tempi_copy_clock() : 0;
    const tempi_op *block;
    while (n > 0 && (block = block_in_progress(flow)) != NULL) {
        const int64_t part = least(block->n - flow->done, n);
        if (out) {
            (flow->nontemporal ? tempi_block_pack_nontemporal : tempi_block_pack)(block, flow->done,
                                                                                  part, out);
            out += part;
        } else {
            tempi_block_unpack(block, flow->done, part, in);
            in += part;
        }
        flow->done += part;
        flow->moved += part;
        n -= part;
    }
    if (flow->timed)
        flow->seconds += tempi_copy_clock() - start;
}

/* ---- offers ---------------------------------------------------------------------------------- */

/* The sender's: all blocks with long runs. */
typedef struct offer {
    int n;
    int64_t bytes;
    uint64_t blocks; /* bit mask */
    tempi_nest_shape shapes[OFFER_MOST];
} offer;

/* Returns the number of runs. */
static int64_t describe(const tempi_flow *flow, offer *out)
{
    int64_t runs = 0;
    out->n = 0;
    out->bytes = 0;
    out->blocks = 0;
    for (int64_t i = 0; i < flow->n && i < 64 && out->n < OFFER_MOST; ++i) {
        tempi_nest_shape *shape = &out->shapes[out->n];
        const int64_t bytes = flow->blocks[i].n;
        if (bytes < OFFER_LEAST || !tempi_nest_describe(&flow->blocks[i], shape) ||
            shape->run < TEMPI_COPY_RUN_LEAST)
            continue;
        shape->block = (int32_t)i;
        runs += shape->runs;
        out->bytes += bytes;
        out->blocks |= (uint64_t)1 << i;
        ++out->n;
    }
    return runs;
}

/* Takes over what the receiver has told about the last long flow. */
static void learn(tempi_ring_end *end)
{
    if (end->choice.call != 0 &&
        __atomic_load_n(&end->ring->timed, __ATOMIC_ACQUIRE) == end->choice.call)
        tempi_copy_measured(&end->choice, end->ring->seconds);
}

/* Packs the whole flow, for the receiver to read. False: there is no memory for that. */
static bool pack_all(tempi_flow *flow, offer *out)
{
    flow->packed = memory.get(flow->bytes);
    if (!flow->packed)
        return false;
    advance(flow, flow->packed, NULL, flow->bytes);
    flow->moved = flow->block = flow->done = 0; /* should it go through the ring after all */
    memset(&out->shapes[0], 0, sizeof out->shapes[0]);
    out->shapes[0].first = (uint64_t)(uintptr_t)flow->packed;
    out->shapes[0].run = flow->bytes;
    out->shapes[0].runs = 1;
    out->n = PACKED;
    return true;
}

/* Fills *out with the blocks to offer: none, if they are to go through the ring. */
static void make_offer(tempi_flow *flow, offer *out)
{
    tempi_copy_choice *choice = &flow->end->choice;
    out->n = 0;
    if (flow->bytes < OFFER_LEAST || flow->streams ||
        !__atomic_load_n(&flow->end->ring->reads, __ATOMIC_RELAXED))
        return;
    const int64_t runs = describe(flow, out);
    if (out->n * (int64_t)sizeof out->shapes[0] > (int64_t)flow->end->capacity / 4)
        out->n = 0;
    const int class = tempi_copy_class(flow->bytes, out->n > 0 ? out->bytes : 0, runs);
    if (class < 0) {
        out->n = 0;
        return;
    }
    learn(flow->end);
    tempi_copy_begin(choice, class, flow->call, flow->bytes);
    flow->timed = true;
    if (choice->way == TEMPI_COPY_ONCE)
        return;
    out->n = 0;
    flow->nontemporal = choice->way == TEMPI_COPY_NONTEMPORAL;
    if (choice->way == TEMPI_COPY_PACKED && !pack_all(flow, out))
        choice->call = 0; /* nothing is learnt */
}

/* The receiver's answer to an offer in that call. */
static uint64_t answer_of(uint64_t call, bool done)
{
    return call * 2 + (done ? 0 : 1);
}

static void hear_answer(tempi_flow *flow)
{
    const uint64_t answer = __atomic_load_n(&flow->end->ring->answer, __ATOMIC_ACQUIRE);
    flow->waits = answer >> 1 != flow->call;
    flow->refused = answer == answer_of(flow->call, false);
    if (flow->refused)
        flow->through = flow->bytes;
    if (!flow->waits && flow->packed) {
        memory.put(flow->packed);
        flow->packed = NULL;
    }
}

/* Reads the offered blocks from the sender's memory. */
static bool read_blocks(tempi_flow *flow, pid_t process, const offer *offered)
{
    for (int i = 0; i < offered->n; ++i) {
        const tempi_nest_shape *shape = &offered->shapes[i];
        tempi_nest_shape own;
        if (shape->block >= flow->n || flow->blocks[shape->block].n != shape->run * shape->runs ||
            !tempi_nest_describe(&flow->blocks[shape->block], &own))
            return false;
        if (!tempi_single_copy_read(process, shape, &own, shape->run * shape->runs)) {
            /* Nothing more of that kind from this process. */
            __atomic_store_n(&flow->end->ring->reads, 0, __ATOMIC_RELAXED);
            return false;
        }
    }
    return true;
}

/* Whether all blocks have long runs, into which packed bytes can be read directly. */
static bool has_long_runs(const tempi_flow *flow)
{
    tempi_nest_shape own;
    for (int64_t i = 0; i < flow->n; ++i)
        if (flow->blocks[i].n > 0 &&
            (!tempi_nest_describe(&flow->blocks[i], &own) || own.run < TEMPI_COPY_RUN_LEAST))
            return false;
    return true;
}

static tempi_nest_shape bytes_at(uint64_t address, int64_t n)
{
    return (tempi_nest_shape){.first = address, .run = n, .runs = 1};
}

/* Reads n bytes of the sender's packed ones into the blocks. */
static bool read_directly(const tempi_flow *flow, pid_t process, uint64_t from)
{
    for (int64_t i = 0; i < flow->n; ++i) {
        const int64_t n = flow->blocks[i].n;
        const tempi_nest_shape packed = bytes_at(from, n);
        tempi_nest_shape own;
        if (n > 0 && (!tempi_nest_describe(&flow->blocks[i], &own) ||
                      !tempi_single_copy_read(process, &packed, &own, n)))
            return false;
        from += (uint64_t)n;
    }
    return true;
}

static bool read_in_pieces(tempi_flow *flow, pid_t process, uint64_t from, int64_t n)
{
    piece_buffer piece;
    bool done = true;
    piece_open(&piece, n);
    for (int64_t at = 0, part; at < n && done; at += part) {
        part = least(n - at, piece.size);
        const tempi_nest_shape packed = bytes_at(from + (uint64_t)at, part),
                               own = bytes_at((uint64_t)(uintptr_t)piece.bytes, part);
        done = tempi_single_copy_read(process, &packed, &own, part);
        if (done)
            advance(flow, NULL, piece.bytes, part);
    }
    piece_close(&piece);
    return done;
}

static bool read_packed(tempi_flow *flow, pid_t process, uint64_t from, int64_t n)
{
    const bool timed = flow->timed; /* the caller takes the time of all */
    flow->timed = false;
    const bool done = n == flow->bytes && has_long_runs(flow)
                          ? read_directly(flow, process, from)
                          : read_in_pieces(flow, process, from, n);
    flow->timed = timed;
    flow->moved = flow->block = flow->done = 0;
    if (!done)
        __atomic_store_n(&flow->end->ring->reads, 0, __ATOMIC_RELAXED);
    return done;
}

/* The header's offer, which follows it. */
static void take_offer(tempi_flow *flow, const header *head)
{
    const bool packed = head->nests == PACKED;
    const pid_t process = (pid_t)head->process;
    offer offered = {.n = packed ? 1 : (int)head->nests};
    tempi_ring_take(flow->end, offered.shapes, offered.n * (int64_t)sizeof offered.shapes[0]);
    tempi_ring_read(flow->end, 0);
    for (int i = 0; !packed && i < offered.n; ++i)
        flow->offered |= (uint64_t)1 << offered.shapes[i].block;
    const double start = tempi_copy_clock();
    flow->refused = flow->failed ||
                    !(packed ? read_packed(flow, process, offered.shapes[0].first, head->bytes)
                             : read_blocks(flow, process, &offered));
    flow->seconds += tempi_copy_clock() - start;
    flow->through = flow->refused ? head->bytes : head->bytes - head->offered;
    __atomic_store_n(&flow->end->ring->answer, answer_of(head->call, !flow->refused),
                     __ATOMIC_RELEASE);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Bytes to the next header's position: it is aligned, so the end of the ring does not cut it. */
static int64_t to_header(const tempi_ring_end *end)
{
    return (int64_t)(-end->own & (HEADER - 1));
}

/* A header is passed on together with what follows it. */
static bool open_out(tempi_flow *flow)
{
    offer offered;
    const int64_t pad = to_header(flow->end);
    if (tempi_ring_room(flow->end) < (int64_t)flow->end->capacity / 2)
        return false; /* enough for the longest offer */
    make_offer(flow, &offered);
    flow->end->own += (uint64_t)pad;
    flow->opened = true;
    flow->waits = offered.n != 0;
    flow->offered = offered.n > 0 ? offered.blocks : 0;
    flow->through = offered.n == PACKED ? 0 : flow->bytes - (offered.n > 0 ? offered.bytes : 0);
    const header head = {.bytes = flow->bytes,
                         .call = flow->call,
                         .nests = offered.n,
                         .offered = flow->bytes - flow->through,
                         .timed = flow->timed,
                         .process = getpid()};
    tempi_ring_put(flow->end, &head, HEADER);
    if (flow->waits) {
        const int64_t n = offered.n == PACKED ? 1 : offered.n;
        tempi_ring_put(flow->end, offered.shapes, n * (int64_t)sizeof offered.shapes[0]);
        tempi_ring_written(flow->end, 0);
    }
    return true;
}

/* Packs one piece; false: the ring has no room for it. */
static bool push_piece(tempi_flow *flow)
{
    int64_t room;
    const int64_t left = flow->through - flow->moved;
    char *at = tempi_ring_free(flow->end, &room);
    const int64_t n = least(least(left, PIECE), room);
    const bool wraps = ((flow->end->own + (uint64_t)room) & (flow->end->capacity - 1)) == 0;
    if (n == 0 || (n < left && !wraps && room < (int64_t)flow->end->capacity / SHARE))
        return false;
    advance(flow, at, NULL, n);
    tempi_ring_written(flow->end, n);
    return true;
}

/* Returns whether anything moved. */
static bool push(tempi_flow *flow)
{
    bool any = false;
    if (!flow->opened && !open_out(flow))
        return false;
    if (flow->waits)
        hear_answer(flow);
    while (flow->moved < flow->through && push_piece(flow))
        any = true;
    if (flow->moved < flow->through || flow->waits)
        return any;
    if (flow->timed)
        flow->end->choice.seconds = flow->seconds;
    flow->ended = true;
    return true;
}

/* ---- receiving ------------------------------------------------------------------------------- */

static bool open_in(tempi_flow *flow)
{
    const int64_t pad = to_header(flow->end);
    header head;
    if (tempi_ring_waiting(flow->end) < pad + HEADER)
        return false;
    flow->end->own += (uint64_t)pad;
    tempi_ring_take(flow->end, &head, HEADER);
    tempi_ring_read(flow->end, 0);
    flow->opened = true;
    flow->failed = head.bytes > flow->bytes || head.call != flow->call;
    flow->timed = head.timed != 0;
    flow->through = head.bytes;
    if (head.nests != 0)
        take_offer(flow, &head);
    return true;
}

/* Unpacks what there is of it; false: nothing. Bytes beyond the blocks are dropped. */
static bool pull_piece(tempi_flow *flow)
{
    int64_t there;
    const char *at = tempi_ring_unread(flow->end, &there);
    int64_t n = least(there, flow->through - flow->moved);
    if (flow->source && !flow->source->ended) /* shorter than this one in a wrong program */
        n = least(n, flow->source->moved - flow->moved);
    if (n <= 0)
        return false;
    const int64_t before = flow->moved;
    advance(flow, NULL, at, n);
    flow->moved = before + n;
    tempi_ring_read(flow->end, n);
    return true;
}

/* Tells the sender how long a long flow took here. */
static void report(const tempi_flow *flow)
{
    flow->end->ring->seconds = flow->seconds;
    __atomic_store_n(&flow->end->ring->timed, flow->call, __ATOMIC_RELEASE);
}

static bool pull(tempi_flow *flow)
{
    bool any = false;
    if (!flow->opened && !open_in(flow))
        return false;
    while (flow->moved < flow->through && pull_piece(flow))
        any = true;
    if (flow->moved < flow->through)
        return any;
    if (flow->timed)
        report(flow);
    flow->ended = true;
    return true;
}

/* ---- all ------------------------------------------------------------------------------------- */

static void end_empty(tempi_flow *flows, int n)
{
    for (int i = 0; i < n; ++i)
        flows[i].ended = flows[i].bytes == 0;
}

void tempi_exchange_begin(tempi_flow *out, int nout, tempi_flow *in, int nin)
{
    end_empty(out, nout);
    end_empty(in, nin);
    for (int i = 0; i < nout; ++i)
        if (!out[i].ended)
            (void)push(&out[i]);
}

bool tempi_exchange_run(tempi_flow *out, int nout, tempi_flow *in, int nin,
                        tempi_exchange_idle *idle, void *state)
{
    int64_t waited = 0;
    for (bool left = true; left;) {
        bool moved = false;
        left = false;
        for (int i = 0; i < nout; ++i) {
            moved |= !out[i].ended && push(&out[i]);
            left |= !out[i].ended;
        }
        for (int i = 0; i < nin; ++i) {
            moved |= !in[i].ended && pull(&in[i]);
            left |= !in[i].ended;
        }
        waited = moved ? 0 : waited + 1;
        if (left && !moved)
            idle(state, waited);
    }
    bool good = true;
    for (int i = 0; i < nin; ++i)
        good &= !in[i].failed;
    return good;
}

/* ---- within one process ---------------------------------------------------------------------- */

/* A long run of one side is packed bytes of the other. */
static bool copy_runs(const tempi_op *from, const tempi_op *to, int64_t n)
{
    tempi_nest_shape source, target;
    tempi_nest_walk walk;
    const int64_t in = tempi_nest_describe(from, &source) ? source.run : 0,
                  out = tempi_nest_describe(to, &target) ? target.run : 0;
    if (in < SELF_RUN && out < SELF_RUN)
        return false;
    tempi_nest_begin(&walk, in >= out ? &source : &target);
    for (int64_t done = 0, part; done < n; done += part) {
        part = least(walk.left, n - done);
        char *run = (char *)(uintptr_t)walk.at;
        if (in >= out)
            tempi_block_unpack(to, done, part, run);
        else
            tempi_block_pack(from, done, part, run);
        tempi_nest_step(&walk, part);
    }
    return true;
}

static void move(const tempi_op *from, const tempi_op *to)
{
    piece_buffer piece;
    const int64_t n = least(from->n, to->n);
    if (copy_runs(from, to, n))
        return;
    piece_open(&piece, n);
    for (int64_t done = 0, part; done < n; done += part) {
        part = least(n - done, piece.size);
        tempi_block_pack(from, done, part, piece.bytes);
        tempi_block_unpack(to, done, part, piece.bytes);
    }
    piece_close(&piece);
}

bool tempi_exchange_self(const tempi_op *from, const tempi_op *to, int64_t n)
{
    bool fits = true;
    for (int64_t i = 0; i < n; ++i) {
        move(&from[i], &to[i]);
        fits &= from[i].n <= to[i].n;
    }
    return fits;
}
