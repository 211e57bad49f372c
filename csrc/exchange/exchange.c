#include "exchange/exchange.h"
#include "base/clock.h"
#include "exchange/block_bytes.h"
#include "exchange/offer.h"
#include "exchange/piece_buffer.h"
#include "exchange/ring_times.h"

#include <string.h>
#include <unistd.h>

enum {
    HEADER = 64, /* and its alignment in the ring */
    /* This share of the ring must be free before a piece that does not end the flow is packed:
     * short pieces are packed slowly. */
    SHARE = 8
};

typedef struct header {
    int64_t bytes; /* of all blocks */
    uint64_t call;
    int64_t nests;   /* blocks that the sender offers, or one of those below */
    int64_t offered; /* bytes in them; DEVICE: of their description */
    int64_t timed;   /* TIMED: the sender wants to know how long it takes */
    int64_t process;
    char unused[HEADER - 6 * 8];
} header;

_Static_assert(sizeof(header) == HEADER, "it is passed through the ring as it is");

/* Of all blocks: offered packed, or in device memory, or already in their place, or to come through
 * the short ring. */
enum { PACKED = -1, DEVICE = -2, STORED = -3, REUSED = -4 };
/* The latter: also how long a line takes between the two cores. */
enum { TIMED = 1, BEATEN = 2 };

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
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

static void spend(tempi_flow *flow, double since)
{
    const double seconds = tempi_clock() - since;
    flow->seconds += seconds;
    if (flow->busy)
        *flow->busy += seconds;
}

/* How long it took here, or all that the process has done meanwhile. */
static double seconds_of(const tempi_flow *flow)
{
    return flow->busy ? *flow->busy : flow->seconds;
}

/* Packs, or unpacks, the next n bytes of the flow, which may be of several blocks. */
static void advance(tempi_flow *flow, char *out, const char *in, int64_t n)
{
    const double start = flow->timed ? tempi_clock() : 0;
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
        spend(flow, start);
}

/* ---- offers ---------------------------------------------------------------------------------- */

static struct tempi_timed_flow *timed_flow(tempi_flow *flow)
{
    return tempi_ring_timed(flow->end, flow->call);
}

/* Packs the whole flow, for the receiver to read. False: there is no memory for that. */
static bool pack_all(tempi_flow *flow, tempi_offer *out)
{
    flow->packed = tempi_exchange_get_read(flow->bytes);
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

/* Whether this process may store the flow's block, which has that class: as the receiver says, or
 * said of the last such flow, if it has not come to this call. */
static bool may_store(tempi_flow *flow, int class)
{
    tempi_ring_end *end = flow->end;
    const uint64_t bit = UINT64_C(1) << class;
    flow->asked = flow->n != 1 || end->unstorable || !tempi_invitation_suits(flow->blocks);
    if (flow->asked)
        return false;
    if (tempi_invitation_is_there(&end->ring->invitation, flow->call)) {
        const bool fits = tempi_invitation_fits(&end->ring->invitation, flow->call, flow->blocks);
        end->storable = fits ? end->storable | bit : end->storable & ~bit;
        flow->asked = true;
    }
    return (end->storable & bit) != 0;
}

/* Sets the way of a flow with these blocks to offer; false: it is too short for a choice. */
static bool choose_way(tempi_flow *flow, const tempi_offer *offer, unsigned access)
{
    tempi_ring_end *end = flow->end;
    const int class = tempi_copy_class(flow->bytes, offer->bytes, offer->runs);
    unsigned ways = 1 << TEMPI_COPY_TWICE | 1 << TEMPI_COPY_NONTEMPORAL;
    if (class < 0)
        return false;
    if (end->reused.data)
        ways |= 1 << TEMPI_COPY_REUSED;
    if (access & TEMPI_ACCESS_READ)
        ways |= 1 << TEMPI_COPY_PACKED;
    if (class >= TEMPI_COPY_OFFERED)
        ways |= 1u << (offer->mapped ? TEMPI_COPY_MAPPED : TEMPI_COPY_ONCE);
    if (may_store(flow, class))
        ways |= 1u << TEMPI_COPY_STORED;
    tempi_ring_learn(end, flow->call);
    const bool alone = flow->gathers || flow->one_way;
    tempi_copy_choice *choice = tempi_ring_choice(end, alone, class);
    const tempi_copy_lead *leader = alone ? NULL : end->leader;
    tempi_copy_lead *own = alone ? NULL : &end->ring->lead;
    const tempi_chosen_way chosen = tempi_copy_choose(choice, class, ways, leader, flow->call, own);
    flow->timed = chosen.timed || flow->gathers; /* a root adds up what it does for all */
    *timed_flow(flow) = (struct tempi_timed_flow){.call = flow->call,
                                                  .bytes = flow->bytes,
                                                  .class = class,
                                                  .way = chosen.way,
                                                  .learns = chosen.timed,
                                                  .gathers = flow->gathers,
                                                  .one_way = flow->one_way,
                                                  .other_llc = end->other_llc};
    return true;
}

/* False: it goes through the ring instead. */
static bool store(tempi_flow *flow)
{
    const double start = flow->timed ? tempi_clock() : 0;
    flow->end->unstorable = !tempi_invitation_follow(&flow->end->ring->invitation, flow->blocks);
    if (flow->timed)
        spend(flow, start);
    return !flow->end->unstorable;
}

/* Fills *out with the blocks to offer: none, if they are to go through the ring. */
static void make_offer(tempi_flow *flow, tempi_offer *out)
{
    tempi_ring_end *end = flow->end;
    const unsigned access = __atomic_load_n(&end->ring->access, __ATOMIC_RELAXED);
    out->n = 0;
    if (flow->bytes < TEMPI_COPY_LEAST || flow->streams || access == 0)
        return;
    tempi_offer_describe(flow->blocks, flow->n, access, out);
    if (out->n * (int64_t)sizeof out->shapes[0] > (int64_t)end->bytes.capacity / 4)
        out->n = 0, out->bytes = 0;
    struct tempi_timed_flow *timed = timed_flow(flow);
    flow->chosen = choose_way(flow, out, access);
    if (flow->chosen && (timed->way == TEMPI_COPY_ONCE || timed->way == TEMPI_COPY_MAPPED))
        return;
    out->n = 0;
    flow->nontemporal = flow->chosen && timed->way == TEMPI_COPY_NONTEMPORAL;
    if (flow->chosen && timed->way == TEMPI_COPY_PACKED && !pack_all(flow, out))
        timed->call = 0; /* nothing is learnt */
    flow->stores = flow->chosen && timed->way == TEMPI_COPY_STORED;
    if (flow->chosen && timed->way == TEMPI_COPY_REUSED)
        out->n = REUSED;
}

/* False: the receiver has not come to this call. */
static bool store_as_invited(tempi_flow *flow, tempi_offer *out)
{
    struct tempi_timed_flow *timed = timed_flow(flow);
    if (!tempi_invitation_is_there(&flow->end->ring->invitation, flow->call))
        return false;
    out->n = may_store(flow, timed->class) && store(flow) ? STORED : 0;
    if (out->n == 0)
        timed->call = 0; /* nothing is learnt */
    flow->stores = false;
    return true;
}

/* The receiver's answer to an offer in that call. */
static uint64_t answer_of(uint64_t call, bool done)
{
    return call * 2 + (done ? 0 : 1);
}

/* If that fails the flow does: what comes of it is dropped, and zeros go in its place. */
static void stage(tempi_flow *flow)
{
    flow->resident = false;
    if (flow->device->stage(flow->device->state, flow))
        return;
    flow->n = 0;
    flow->failed = true;
}

static void hear_of_device(tempi_flow *flow)
{
    if (!flow->refused) {
        tempi_offer_was_accepted(&flow->end->pause);
        return;
    }
    tempi_offer_was_refused(&flow->end->pause);
    stage(flow);
}

static void hear_answer(tempi_flow *flow)
{
    const uint64_t answer = __atomic_load_n(&flow->end->ring->answer, __ATOMIC_ACQUIRE);
    flow->waits = answer >> 1 != flow->call;
    flow->refused = answer == answer_of(flow->call, false);
    if (flow->refused)
        flow->through = flow->bytes;
    if (flow->offer && !flow->waits)
        hear_of_device(flow);
    if (!flow->waits && flow->packed) {
        tempi_exchange_put(flow->packed);
        flow->packed = NULL;
    }
}

/* The header's offer, which follows it. */
static void take_offer(tempi_flow *flow, const header *head)
{
    const bool packed = head->nests == PACKED;
    const pid_t process = (pid_t)head->process;
    tempi_ring *const ring = flow->end->ring;
    tempi_nest_shape shapes[TEMPI_OFFER_MOST];
    const int n = packed ? 1 : (int)head->nests;
    tempi_ring_take(&flow->end->bytes, shapes, n * (int64_t)sizeof shapes[0]);
    tempi_ring_read(&flow->end->bytes, 0);
    for (int i = 0; !packed && i < n; ++i)
        flow->offered |= (uint64_t)1 << shapes[i].block;
    const double start = flow->timed ? tempi_clock() : 0;
    const tempi_offer_result result =
        flow->failed ? TEMPI_OFFER_UNLIKE
        : packed
            ? tempi_offer_read_packed(process, shapes[0].first, head->bytes, flow->blocks, flow->n)
            : tempi_offer_read(process, ring->access, shapes, n, flow->blocks, flow->n);
    flow->refused = result != TEMPI_OFFER_WAS_READ && result != TEMPI_OFFER_NOT_MAPPED;
    /* after a failure nothing more of that kind from this process */
    __atomic_store_n(&ring->access, tempi_offer_access_after(result, ring->access),
                     __ATOMIC_RELAXED);
    if (flow->timed)
        spend(flow, start);
    flow->through = flow->refused ? head->bytes : head->bytes - head->offered;
    __atomic_store_n(&flow->end->ring->answer, answer_of(head->call, !flow->refused),
                     __ATOMIC_RELEASE);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Bytes to the next header's position: it is aligned, so the end of the ring does not cut it. */
static int64_t to_header(const tempi_ring_end *end)
{
    return (int64_t)(-end->bytes.own & (HEADER - 1));
}

/* Offers the blocks to the receiver's device. */
static void open_to_device(tempi_flow *flow)
{
    const header head = {.bytes = flow->bytes,
                         .call = flow->call,
                         .nests = DEVICE,
                         .offered = flow->offer_bytes,
                         .process = getpid()};
    flow->end->bytes.own += (uint64_t)to_header(flow->end);
    flow->opened = flow->waits = true;
    tempi_ring_put(&flow->end->bytes, &head, HEADER);
    tempi_ring_put(&flow->end->bytes, flow->offer, flow->offer_bytes);
    tempi_ring_written(&flow->end->bytes, 0);
}

/* Those that do not go through a ring. */
static int64_t offered_bytes(const tempi_flow *flow, const tempi_offer *offered)
{
    return offered->n > 0                                 ? offered->bytes
           : offered->n == PACKED || offered->n == STORED ? flow->bytes
                                                          : 0;
}

/* A header is passed on together with what follows it in the ring. */
static bool open_out(tempi_flow *flow)
{
    tempi_offer offered;
    const int64_t pad = to_header(flow->end);
    if (tempi_ring_room(&flow->end->bytes) < (int64_t)flow->end->bytes.capacity / 2)
        return false; /* enough for the longest offer */
    if (flow->offer) {
        open_to_device(flow);
        return true;
    }
    if (!flow->stores)
        make_offer(flow, &offered);
    if (flow->stores && !store_as_invited(flow, &offered))
        return false;
    flow->end->bytes.own += (uint64_t)pad;
    flow->opened = true;
    flow->reused = offered.n == REUSED;
    flow->waits = offered.n > 0 || offered.n == PACKED;
    flow->offered = offered.n > 0 ? offered.blocks : 0;
    flow->through = flow->bytes - offered_bytes(flow, &offered);
    const bool beaten = flow->chosen && tempi_ring_beat(flow->end, flow->call, flow->bytes);
    if (flow->chosen && !beaten && !flow->timed)
        timed_flow(flow)->call = 0; /* the receiver tells nothing */
    const header head = {.bytes = flow->bytes,
                         .call = flow->call,
                         .nests = offered.n,
                         .offered = flow->bytes - flow->through,
                         .timed = beaten        ? BEATEN
                                  : flow->timed ? TIMED
                                                : 0,
                         .process = flow->waits ? getpid() : 0}; /* a system call */
    tempi_ring_put(&flow->end->bytes, &head, HEADER);
    if (flow->waits) {
        const int64_t n = offered.n == PACKED ? 1 : offered.n;
        tempi_ring_put(&flow->end->bytes, offered.shapes, n * (int64_t)sizeof offered.shapes[0]);
    }
    if (offered.n != 0)
        tempi_ring_written(&flow->end->bytes, 0);
    return true;
}

/* The bytes of a flow that has failed. */
static void push_zeros(char *at, tempi_flow *flow, int64_t n)
{
    memset(at, 0, (size_t)n);
    flow->moved += n;
}

/* Its bytes. */
static tempi_ring_bytes *through(const tempi_flow *flow)
{
    return flow->reused ? &flow->end->reused : &flow->end->bytes;
}

/* So short that it is passed on in the flag's line, too, if it is of the host alone. */
static bool is_brief(const tempi_flow *flow)
{
    return flow->bytes <= TEMPI_BRIEF_MOST && !flow->device && !flow->failed;
}

/* Packs one piece; false: the ring has no room for it. */
static bool push_piece(tempi_flow *flow)
{
    int64_t room;
    const int64_t left = flow->through - flow->moved;
    tempi_ring_bytes *ring = through(flow);
    char *at = tempi_ring_free(ring, &room);
    const int64_t n = least(least(left, TEMPI_PIECE_MOST), room);
    const bool wraps = ((ring->own + (uint64_t)room) & (ring->capacity - 1)) == 0;
    if (n == 0 || (n < left && !wraps && room < (int64_t)ring->capacity / SHARE))
        return false;
    if (flow->failed)
        push_zeros(at, flow, n);
    else
        advance(flow, at, NULL, n);
    if (n == flow->bytes && is_brief(flow))
        tempi_brief_write(&flow->end->ring->brief, ring->own - HEADER, flow->call, at, n);
    tempi_ring_written(ring, n);
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
    if (flow->chosen && !flow->asked && flow->moved < flow->through)
        (void)may_store(flow, timed_flow(flow)->class); /* for the next one */
    while (flow->moved < flow->through && push_piece(flow))
        any = true;
    if (flow->moved < flow->through || flow->waits)
        return any;
    if (flow->timed)
        timed_flow(flow)->seconds = seconds_of(flow);
    flow->ended = true;
    return true;
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* False: there is no memory, or the device cannot read it. */
static bool accepts(tempi_flow *flow, int64_t n)
{
    void *offer = tempi_exchange_get(n);
    if (offer)
        tempi_ring_take(&flow->end->bytes, offer, n);
    else
        flow->end->bytes.own += (uint64_t)n;
    tempi_ring_read(&flow->end->bytes, 0);
    const bool good = offer && !flow->failed && flow->device &&
                      flow->device->accept(flow->device->state, flow, offer, n);
    if (offer)
        tempi_exchange_put(offer);
    return good;
}

static void take_device_offer(tempi_flow *flow, const header *head)
{
    flow->reads = accepts(flow, head->offered);
    flow->through = flow->reads ? 0 : head->bytes;
    if (!flow->reads)
        __atomic_store_n(&flow->end->ring->answer, answer_of(head->call, false), __ATOMIC_RELEASE);
}

/* All of it at once, if it is in the flag's line. (What it replaces is packed first.) */
static bool take_brief(tempi_flow *flow)
{
    char bytes[TEMPI_BRIEF_MOST];
    if (!is_brief(flow) || (flow->source && !flow->source->ended) ||
        !tempi_brief_read(&flow->end->ring->brief, flow->end->bytes.own, flow->call, flow->bytes,
                          bytes))
        return false;
    advance(flow, NULL, bytes, flow->bytes);
    tempi_ring_read(&flow->end->bytes, HEADER + flow->bytes);
    flow->opened = true;
    flow->through = flow->bytes;
    return true;
}

static bool open_in(tempi_flow *flow)
{
    const int64_t pad = to_header(flow->end);
    header head;
    if (tempi_ring_waiting(&flow->end->bytes) < pad + HEADER)
        return false;
    flow->end->bytes.own += (uint64_t)pad;
    if (take_brief(flow))
        return true;
    tempi_ring_take(&flow->end->bytes, &head, HEADER);
    tempi_ring_read(&flow->end->bytes, 0);
    flow->opened = true;
    flow->failed |= head.bytes > flow->bytes || head.call != flow->call;
    flow->timed = head.timed != 0;
    flow->latency = head.timed == BEATEN ? tempi_ring_time_beat(flow->end->ring) : -1;
    flow->through = head.nests == STORED ? 0 : head.bytes;
    flow->reused = head.nests == REUSED;
    if (head.nests == DEVICE)
        take_device_offer(flow, &head);
    if (flow->resident && !flow->reads)
        stage(flow);
    if (head.nests > 0 || head.nests == PACKED)
        take_offer(flow, &head);
    return true;
}

/* Unpacks what there is of it; false: nothing. Bytes beyond the blocks are dropped. */
static bool pull_piece(tempi_flow *flow)
{
    int64_t there;
    tempi_ring_bytes *ring = through(flow);
    const char *at = tempi_ring_unread(ring, &there);
    int64_t n = least(there, flow->through - flow->moved);
    if (flow->source && !flow->source->ended) /* shorter than this one in a wrong program */
        n = least(n, flow->source->moved - flow->moved);
    if (n <= 0)
        return false;
    const int64_t before = flow->moved;
    advance(flow, NULL, at, n);
    flow->moved = before + n;
    tempi_ring_read(ring, n);
    return true;
}

static bool pull(tempi_flow *flow)
{
    bool any = false;
    if (!flow->opened && !open_in(flow))
        return false;
    while (flow->moved < flow->through && pull_piece(flow))
        any = true;
    if (flow->moved < flow->through || flow->reads)
        return any;
    if (flow->timed)
        tempi_ring_report(flow->end->ring, flow->call, seconds_of(flow), flow->latency);
    flow->ended = true;
    return true;
}

/* ---- all ------------------------------------------------------------------------------------- */

static void end_empty(tempi_flow *flows, int n)
{
    for (int i = 0; i < n; ++i)
        flows[i].ended = flows[i].bytes == 0;
}

/* Meanwhile, by another process. (What replaces sent blocks comes through the ring: flow.streams.)
 */
static bool may_be_stored(const tempi_flow *in)
{
    return !in->resident && !in->failed;
}

void tempi_exchange_begin(tempi_flow *out, int nout, tempi_flow *in, int nin)
{
    end_empty(out, nout);
    end_empty(in, nin);
    for (int i = 0; i < nin; ++i)
        tempi_invite(&in[i].end->ring->invitation, in[i].call, in[i].blocks,
                     may_be_stored(&in[i]) ? in[i].n : 0);
    for (int i = 0; i < nout; ++i)
        if (!out[i].ended)
            (void)push(&out[i]);
}

/* A flow that the device is to read, once all flows have their headers; else NULL. */
static const tempi_flow *ready_for_device(const tempi_flow *in, int nin)
{
    const tempi_flow *found = NULL;
    for (int i = 0; i < nin; ++i) {
        if (!in[i].opened && !in[i].ended)
            return NULL;
        found = in[i].reads ? &in[i] : found;
    }
    return found;
}

/* What it was offered, from all processes at once. */
static void read_by_device(const tempi_flow_device *device, tempi_flow *in, int nin)
{
    const bool good = device->read(device->state);
    for (int i = 0; i < nin; ++i) {
        if (!in[i].reads)
            continue;
        __atomic_store_n(&in[i].end->ring->answer, answer_of(in[i].call, true), __ATOMIC_RELEASE);
        in[i].failed |= !good;
        in[i].reads = false;
    }
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
        const tempi_flow *ready = ready_for_device(in, nin);
        if (ready)
            read_by_device(ready->device, in, nin);
        moved |= ready != NULL;
        waited = moved ? 0 : waited + 1;
        if (left && !moved)
            idle(state, waited);
    }
    bool good = true;
    for (int i = 0; i < nin; ++i)
        good &= !in[i].failed;
    return good;
}
