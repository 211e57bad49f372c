#include "exchange/exchange.h"
#include "exchange/single_copy.h"

#include <string.h>
#include <unistd.h>

enum {
    HEADER = 64,      /* and its alignment in the ring */
    PIECE = 32 << 10, /* the receiver starts when the first piece is there */
    /* Of the ring must be free before a piece that does not end the flow is packed: short pieces
     * are packed slowly. */
    SHARE = 8,
    OFFER_LEAST = 64 << 10, /* bytes of a flow: shorter ones do not wait for an answer */
    OFFER_MOST = 16,        /* blocks in it */
    SELF_PIECE = 16 << 10,  /* stays in a first-level cache */
    SELF_RUN = 2 << 10      /* so long runs are copied one by one */
};

typedef struct header {
    int64_t bytes;
    uint64_t call;
    int64_t nests; /* blocks that the sender offers; 0: the bytes follow */
    int64_t timed; /* the sender wants to know how long it takes */
    int64_t process;
    char unused[HEADER - 5 * 8];
} header;

_Static_assert(sizeof(header) == HEADER, "it is passed through the ring as it is");

/* ---- one piece ------------------------------------------------------------------------------- */

static void pack_piece(const tempi_op *block, int64_t first, int64_t n, char *packed)
{
    if (block->layout)
        tempi_pack(block->layout, block->count, block->mem, first, n, packed);
    else
        memcpy(packed, (const char *)block->mem + first, (size_t)n);
}

static void unpack_piece(const tempi_op *block, int64_t first, int64_t n, const char *packed)
{
    if (block->layout)
        tempi_unpack(block->layout, block->count, packed, first, n, block->mem);
    else
        memcpy((char *)block->mem + first, packed, (size_t)n);
}

/* Steps over blocks without bytes. */
static void skip_empty(tempi_flow *flow)
{
    while (flow->block < flow->n && flow->done == flow->blocks[flow->block].n) {
        ++flow->block;
        flow->done = 0;
    }
}

/* Packs, or unpacks, the next n bytes of the flow, which may be of several blocks. */
static void advance(tempi_flow *flow, char *out, const char *in, int64_t n)
{
    while (n > 0) {
        skip_empty(flow);
        const tempi_op *block = &flow->blocks[flow->block];
        const int64_t left = block->n - flow->done, part = left < n ? left : n;
        if (out) {
            pack_piece(block, flow->done, part, out);
            out += part;
        } else {
            unpack_piece(block, flow->done, part, in);
            in += part;
        }
        flow->done += part;
        flow->moved += part;
        n -= part;
    }
}

/* ---- sending --------------------------------------------------------------------------------- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Bytes to the next header's position. */
static int64_t to_header(const tempi_ring_end *end)
{
    return (int64_t)(-end->own & (HEADER - 1));
}

/* The structure of all blocks with bytes, for the receiver to read; 0: it should not, or cannot. */
static int describe(const tempi_flow *flow, tempi_nest_shape *shapes, int64_t *runs)
{
    int n = 0;
    *runs = 0;
    for (int64_t i = 0; i < flow->n; ++i) {
        if (flow->blocks[i].n == 0)
            continue;
        if (n == OFFER_MOST || !tempi_nest_describe(&flow->blocks[i], &shapes[n]))
            return 0;
        *runs += shapes[n++].runs;
    }
    const int64_t bytes = n * (int64_t)sizeof *shapes + 2 * HEADER;
    return bytes <= (int64_t)flow->end->capacity / 2 ? n : 0;
}

/* Takes over what the receiver has told about the last long flow. */
static void learn(tempi_ring_end *end)
{
    if (end->choice.call != 0 &&
        __atomic_load_n(&end->ring->timed, __ATOMIC_ACQUIRE) == end->choice.call)
        tempi_copy_learn(&end->choice, end->ring->seconds);
}

/* Number of blocks to offer. */
static int offer(tempi_flow *flow, tempi_nest_shape *shapes)
{
    tempi_copy_choice *choice = &flow->end->choice;
    int64_t runs;
    int n = 0;
    if (flow->bytes < OFFER_LEAST || flow->streams ||
        !__atomic_load_n(&flow->end->ring->reads, __ATOMIC_RELAXED))
        return 0;
    if ((n = describe(flow, shapes, &runs)) == 0)
        return 0;
    const int class = tempi_copy_class(flow->bytes, runs);
    if (class < 0)
        return 0;
    learn(flow->end);
    choice->way = tempi_copy_choose(choice, class);
    choice->class = class;
    choice->call = flow->call;
    choice->bytes = flow->bytes;
    choice->seconds = 0;
    flow->timed = true;
    return choice->way == TEMPI_COPY_ONCE ? n : 0;
}

static bool open_out(tempi_flow *flow)
{
    tempi_nest_shape shapes[OFFER_MOST];
    const int64_t pad = to_header(flow->end);
    if (tempi_ring_room(flow->end) < least(pad + HEADER + (int64_t)sizeof shapes,
                                           (int64_t)flow->end->capacity / 2))
        return false;
    const int n = offer(flow, shapes);
    const int64_t bytes = n * (int64_t)sizeof *shapes;
    flow->end->own += (uint64_t)pad;
    const header head = {
        .bytes = flow->bytes, .call = flow->call, .nests = n, .timed = flow->timed,
        .process = getpid()};
    tempi_ring_put(flow->end, &head, HEADER);
    flow->opened = true;
    flow->offered = n > 0;
    if (n > 0) {
        tempi_ring_put(flow->end, shapes, bytes);
        tempi_ring_written(flow->end, 0);
    }
    return true;
}

/* The receiver's answer to an offer in that call. */
static uint64_t answer_of(uint64_t call, bool done)
{
    return call * 2 + (done ? 0 : 1);
}

/* False: there is none yet. */
static bool answered(tempi_flow *flow)
{
    const uint64_t answer = __atomic_load_n(&flow->end->ring->answer, __ATOMIC_ACQUIRE);
    if (answer == answer_of(flow->call, true)) {
        flow->moved = flow->bytes;
        flow->ended = true;
    } else if (answer != answer_of(flow->call, false)) {
        return false;
    }
    flow->offered = false;
    return true;
}

static bool push(tempi_flow *flow)
{
    if (!flow->opened && !open_out(flow))
        return false;
    if (flow->offered && !answered(flow))
        return false;
    bool any = flow->ended;
    while (!flow->ended) {
        int64_t room;
        const int64_t left = flow->bytes - flow->moved;
        char *at = tempi_ring_free(flow->end, &room);
        const int64_t most = least(least(left, PIECE), room);
        const bool wraps = ((flow->end->own + (uint64_t)room) & (flow->end->capacity - 1)) == 0;
        if (most == 0 ||
            (most < left && !wraps && room < (int64_t)flow->end->capacity / SHARE))
            return any;
        const double start = flow->timed ? tempi_copy_clock() : 0;
        advance(flow, at, NULL, most);
        if (flow->timed)
            flow->end->choice.seconds += tempi_copy_clock() - start;
        tempi_ring_written(flow->end, most);
        any = true;
        flow->ended = flow->moved == flow->bytes;
    }
    return any;
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Reads all blocks from the sender's memory. */
static bool read_blocks(tempi_flow *flow, pid_t process, const tempi_nest_shape *shapes, int64_t n)
{
    int64_t k = 0;
    for (int64_t i = 0; i < flow->n; ++i) {
        const tempi_op *block = &flow->blocks[i];
        tempi_nest_shape own;
        if (block->n == 0)
            continue;
        if (k == n || shapes[k].run * shapes[k].runs != block->n ||
            !tempi_nest_describe(block, &own))
            return false;
        if (!tempi_single_copy_read(process, &shapes[k++], &own, block->n)) {
            /* Nothing more of that kind from this process. */
            __atomic_store_n(&flow->end->ring->reads, 0, __ATOMIC_RELAXED);
            return false;
        }
    }
    return k == n;
}

/* Tells the sender how long a long flow took here. */
static void report(tempi_flow *flow)
{
    if (!flow->timed)
        return;
    flow->end->ring->seconds = flow->seconds;
    __atomic_store_n(&flow->end->ring->timed, flow->call, __ATOMIC_RELEASE);
}

static void answer_offer(tempi_flow *flow, pid_t process, int64_t n)
{
    tempi_nest_shape shapes[OFFER_MOST];
    tempi_ring_take(flow->end, shapes, n * (int64_t)sizeof *shapes);
    tempi_ring_read(flow->end, 0);
    const double start = tempi_copy_clock();
    const bool done = !flow->failed && read_blocks(flow, process, shapes, n);
    flow->seconds += tempi_copy_clock() - start;
    if (done) {
        flow->moved = flow->bytes;
        flow->ended = true;
        report(flow);
    }
    __atomic_store_n(&flow->end->ring->answer, answer_of(flow->call, done), __ATOMIC_RELEASE);
}

/* The sender passes a header on together with what follows it. */
static bool open_in(tempi_flow *flow)
{
    const int64_t pad = to_header(flow->end);
    if (tempi_ring_waiting(flow->end) < pad + HEADER)
        return false;
    header head;
    flow->end->own += (uint64_t)pad;
    tempi_ring_take(flow->end, &head, HEADER);
    tempi_ring_read(flow->end, 0);
    flow->total = head.bytes;
    flow->failed = head.bytes > flow->bytes || head.call != flow->call;
    flow->opened = true;
    flow->timed = head.timed != 0;
    if (head.nests > 0)
        answer_offer(flow, (pid_t)head.process, head.nests);
    return true;
}

static bool pull(tempi_flow *flow)
{
    if (!flow->opened && !open_in(flow))
        return false;
    bool any = flow->ended;
    while (flow->moved < flow->total) {
        int64_t there;
        const char *at = tempi_ring_unread(flow->end, &there);
        int64_t n = least(there, flow->total - flow->moved);
        if (flow->source)
            n = least(n, flow->source->moved - flow->moved);
        if (n <= 0)
            return any;
        const int64_t fits = least(n, flow->bytes - flow->moved);
        const double start = flow->timed ? tempi_copy_clock() : 0;
        if (fits > 0)
            advance(flow, NULL, at, fits);
        if (flow->timed)
            flow->seconds += tempi_copy_clock() - start;
        flow->moved += fits > 0 ? n - fits : n;
        tempi_ring_read(flow->end, n);
        any = true;
    }
    flow->ended = true;
    report(flow);
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
            unpack_piece(to, done, part, run);
        else
            pack_piece(from, done, part, run);
        tempi_nest_step(&walk, part);
    }
    return true;
}

static void move(const tempi_op *from, const tempi_op *to)
{
    _Alignas(64) char piece[SELF_PIECE];
    const int64_t n = least(from->n, to->n);
    if (copy_runs(from, to, n))
        return;
    for (int64_t done = 0, part; done < n; done += part) {
        part = least(n - done, SELF_PIECE);
        pack_piece(from, done, part, piece);
        unpack_piece(to, done, part, piece);
    }
}

void tempi_exchange_self(const tempi_op *from, const tempi_op *to, int64_t n)
{
    for (int64_t i = 0; i < n; ++i)
        move(&from[i], &to[i]);
}
