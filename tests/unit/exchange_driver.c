/* exchange_driver.c: csrc/exchange under the sanitizers, for test_exchange_native.py.
 *
 *     processes|threads FOLDER MEMBERS CAPACITY ROUNDS SEED
 *
 * The members, each a process or a thread, make random exchanges through a segment whose rings,
 * also the short ones, are cut to that capacity; CAPACITY 0 leaves the segment's own. All of them
 * draw the same plan of each round: the blocks from each member to each other one, with a structure
 * of its own on each side, of which one may be empty, longer than what receives it, or in place; or
 * all send to one. Every buffer is compared with what the layout's own unpack in one piece stores.
 * Prints the positions of headers in the ring, the flows that were read in one copy, that were
 * refused, that failed and that their senders stored, and at a root, and the bytes that were read
 * from mapped memory, one line per member.
 *
 *     self ROUNDS SEED
 *
 * A ring; and random blocks: the walk over a nest against the packed bytes, one copy from this
 * process itself, and moves within it. Prints how many were nests, and went
 * from layout to layout.
 *
 * Exits with 1 at the first error. */
#include "base/stats.h"
#include "base/thread.h"
#include "exchange/segment.h"
#include "exchange_self.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>

enum { BLOCKS = 6 };

/* ---- one exchange ---------------------------------------------------------------------------- */

typedef struct counts {
    uint64_t positions; /* bit mask of the headers', in the ring modulo 64 of them */
    int offered, refused, failed, stored, gathered; /* stored by senders; at a root */
} counts;

/* This process's, or this thread's. */
typedef struct member {
    int rank, members;
    const char *folder, *name;
    int64_t capacity;
    int rounds;
    uint64_t seed;
    tempi_ring_end to[MEMBERS], from[MEMBERS];
    counts seen;
} member;

typedef struct side {
    int n;
    block blocks[BLOCKS];
    tempi_op ops[BLOCKS];
    bool cut; /* the sender has more than the receiver */
} side;

/* A part of the calls fails, where the test wants it: as where memory cannot be read. */
static _Thread_local int unreadable;

static unsigned long no_more_than(unsigned long n)
{
    return unreadable > 0 && unreadable-- == 1 ? n > 1 : n;
}

ssize_t __wrap_process_vm_readv(pid_t process, const struct iovec *here, unsigned long nhere,
                                const struct iovec *there, unsigned long nthere,
                                unsigned long flags)
{
    const unsigned long n = no_more_than(nthere);
    return n > 0 ? __real_process_vm_readv(process, here, nhere, there, n, flags) : -1;
}

ssize_t __real_process_vm_writev(pid_t process, const struct iovec *here, unsigned long nhere,
                                 const struct iovec *there, unsigned long nthere,
                                 unsigned long flags);

ssize_t __wrap_process_vm_writev(pid_t process, const struct iovec *here, unsigned long nhere,
                                 const struct iovec *there, unsigned long nthere,
                                 unsigned long flags)
{
    const unsigned long n = no_more_than(nthere);
    return n > 0 ? __real_process_vm_writev(process, here, nhere, there, n, flags) : -1;
}

/* Likewise, as where memory of another process cannot be mapped. */
static _Thread_local int unmappable;

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);

int __wrap_open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    if (strncmp(path, "/proc/", 6) == 0 && unmappable > 0 && unmappable-- == 1)
        return -1;
    return __real_open(path, flags, mode);
}

static uint64_t key_of(const member *m, int round, int from, int to, int i)
{
    return ((((m->seed * 1000 + (uint64_t)round) * 8 + (uint64_t)from) * 8 + (uint64_t)to) * 8 +
            (uint64_t)i);
}

/* Often of long runs. */
static block block_of_long_runs(dice *d, int64_t n)
{
    tempi_nest_shape shape;
    block b = block_make(d, n);
    for (int tries = 0; tries < 4; ++tries) {
        if (tempi_nest_describe(&b.op, &shape) && shape.run >= TEMPI_COPY_RUN_LEAST)
            break;
        block_free(&b);
        b = block_make(d, n);
    }
    return b;
}

/* Of one block that is often stored by its sender. */
static int64_t draw_long(dice *d)
{
    static const int64_t sizes[] = {4096, 65536, 131072, 196608, 262144, 524288};
    return sizes[draw(d, 0, (int64_t)(sizeof sizes / sizeof *sizes) - 1)];
}

/* Both sides of the flow between two members; this process keeps its own one. */
static void side_make(const member *m, int round, int from, int to, bool sends, side *out)
{
    dice d = {key_of(m, round, from, to, 7) * 0x9E3779B97F4A7C15u | 1};
    const bool one = draw(&d, 0, 4) == 0;
    *out = (side){.n = one ? 1 : (int)draw(&d, 0, BLOCKS), .cut = draw(&d, 0, 15) == 0};
    for (int i = 0; i < out->n; ++i) {
        int64_t n = one ? draw_long(&d) : draw_bytes(&d);
        const int64_t more = draw(&d, 1, 30000);
        dice own = {d.state ^ (sends ? 0x5555 : 0xAAAA)};
        if (out->cut && i == 0) /* who receives nothing does not look for a header */
            n += 64;
        if (out->cut && sends && i == out->n - 1)
            n += more;
        block *b = &out->blocks[i];
        *b = one ? block_of_long_runs(&own, n) : block_make(&own, n);
        char *packed = content(key_of(m, round, from, to, i), n);
        store(b, b->expected, packed, n);
        if (sends)
            memcpy(b->memory, b->expected, (size_t)b->bytes);
        free(packed);
        out->ops[i] = b->op;
    }
    out->cut &= out->n > 0;
}

static void side_check(const side *s, bool compares)
{
    for (int i = 0; compares && i < s->n; ++i)
        if (memcmp(s->blocks[i].memory, s->blocks[i].expected, (size_t)s->blocks[i].bytes) != 0)
            fail("wrong bytes");
}

static void side_free(side *s)
{
    for (int i = 0; i < s->n; ++i)
        block_free(&s->blocks[i]);
}

static tempi_flow flow_of(const side *s, tempi_ring_end *end, int round)
{
    tempi_flow flow = {.end = end, .blocks = s->ops, .n = s->n, .call = (uint64_t)round + 1};
    for (int i = 0; i < s->n; ++i)
        flow.bytes += s->ops[i].n;
    return flow;
}

static void rest(void *state, int64_t idle)
{
    (void)state, (void)idle;
    sched_yield();
}

/* That way always; with TEMPI_COPY_WAYS as measured. */
static void prefer_in(tempi_copy_choice *choice, int64_t way)
{
    for (int c = 0; c < TEMPI_COPY_CLASSES && way < TEMPI_COPY_WAYS; ++c) {
        choice->classes[c].flows = TEMPI_COPY_TRIALS; /* past those that try another one */
        for (int i = 0; i < TEMPI_COPY_WAYS; ++i) {
            choice->classes[c].samples[i] = 3 * TEMPI_COPY_TRIALS;
            choice->classes[c].cost[i] = i == way ? 1e-12F : 1e-3F;
        }
    }
}

static void prefer(tempi_copy_choice choice[2], int64_t way)
{
    prefer_in(&choice[0], way);
    prefer_in(&choice[1], way);
}

/* TEMPI_COPY_WAYS: as measured. */
static int64_t any_way(dice *d, bool one_block)
{
    if (one_block && draw(d, 0, 1))
        return TEMPI_COPY_STORED;
    const int64_t way = draw(d, 0, TEMPI_COPY_REUSED);
    return way == TEMPI_COPY_REUSED                   ? TEMPI_COPY_WAYS
           : way == TEMPI_COPY_TWICE && draw(d, 0, 1) ? TEMPI_COPY_REUSED
                                                      : way;
}

static void note_position(member *m, const tempi_flow *flow)
{
    if (flow->bytes > 0)
        m->seen.positions |= (uint64_t)1 << (flow->end->bytes.own + 63) / 64 % 64;
}

/* Members leave the round one after another, and some come to it late. */
static void dawdle(dice *d)
{
    if (draw(d, 0, 3) == 0)
        for (int64_t i = draw(d, 0, 3000); i > 0; --i)
            sched_yield();
}

static void note_flows(member *m, const tempi_flow *in, int n)
{
    for (int i = 0; i < n; ++i) {
        m->seen.offered += in[i].offered != 0 || (in[i].bytes > 0 && in[i].through == 0);
        m->seen.refused += in[i].refused;
        m->seen.failed += in[i].failed;
    }
}

/* How many of these were stored by this process, which may try again. */
static int stored_of(const tempi_flow *to, int n)
{
    int stored = 0;
    for (int i = 0; i < n; ++i) {
        const struct tempi_timed_flow *last = &to[i].end->last[to[i].call % TEMPI_RING_TIMED];
        stored += last->call == to[i].call && last->way == TEMPI_COPY_STORED;
        to[i].end->unstorable = false;
    }
    return stored;
}

static void apart(member *m, int round, dice *own)
{
    side out[MEMBERS], in[MEMBERS];
    tempi_flow to[MEMBERS], from[MEMBERS];
    int n = 0;
    bool cut = false;
    for (int i = 1; i < m->members; ++i, ++n) {
        const int next = (m->rank + i) % m->members, last = (m->rank - i + m->members) % m->members;
        side_make(m, round, m->rank, next, true, &out[n]);
        side_make(m, round, last, m->rank, false, &in[n]);
        prefer(m->to[next].choice, any_way(own, out[n].n == 1));
        to[n] = flow_of(&out[n], &m->to[next], round);
        from[n] = flow_of(&in[n], &m->from[last], round);
        note_position(m, &to[n]);
        cut |= in[n].cut;
    }
    unreadable = draw(own, 0, 4) == 0 ? (int)draw(own, 1, 4) : 0;
    unmappable = draw(own, 0, 7) == 0 ? (int)draw(own, 1, 2) : 0;
    tempi_exchange_begin(to, n, from, n);
    dawdle(own);
    if (tempi_exchange_run(to, n, from, n, rest, NULL) == cut)
        fail(cut ? "too many bytes went unnoticed" : "it failed");
    note_flows(m, from, n);
    m->seen.stored += stored_of(to, n);
    for (int i = 0; i < n; ++i) {
        if (unreadable == 0 && unmappable == 0) /* used up: try again in later rounds */
            __atomic_store_n(&from[i].end->ring->access, TEMPI_ACCESS_READ | TEMPI_ACCESS_MAP,
                             __ATOMIC_RELAXED);
        side_check(&out[i], true);
        side_check(&in[i], !in[i].cut);
        side_free(&out[i]);
        side_free(&in[i]);
    }
}

/* What comes from a member replaces what went there; both have the same structure. */
static void in_place(member *m, int round, dice *own)
{
    side both[MEMBERS];
    tempi_flow to[MEMBERS], from[MEMBERS];
    int n = 0;
    for (int i = 1; i < m->members; ++i, ++n) {
        const int peer = (m->rank + i) % m->members, low = peer < m->rank ? peer : m->rank,
                  high = peer < m->rank ? m->rank : peer;
        side_make(m, round, low, high, false, &both[n]); /* the same on both */
        side *s = &both[n];
        for (int k = 0; k < s->n; ++k) {
            block *b = &s->blocks[k];
            char *sent = content(key_of(m, round, m->rank, peer, k), b->op.n),
                 *comes = content(key_of(m, round, peer, m->rank, k), b->op.n);
            store(b, b->memory, sent, b->op.n);
            memcpy(b->expected, b->memory, (size_t)b->bytes);
            store(b, b->expected, comes, b->op.n);
            free(sent);
            free(comes);
        }
        to[n] = flow_of(s, &m->to[peer], round);
        from[n] = flow_of(s, &m->from[peer], round);
        to[n].streams = true;
        from[n].source = &to[n];
        note_position(m, &to[n]);
    }
    tempi_exchange_begin(to, n, from, n);
    dawdle(own);
    if (!tempi_exchange_run(to, n, from, n, rest, NULL))
        fail("in place: it failed");
    for (int i = 0; i < n; ++i) {
        side_check(&both[i], true);
        side_free(&both[i]);
    }
}

/* One block, often a long one. */
static void side_of_gather(const member *m, int round, int from, bool sends, side *out)
{
    dice d = {key_of(m, round, from, 0, 6) * 0x9E3779B97F4A7C15u | 1};
    int64_t n = draw_long(&d);
    *out = (side){.n = 1, .cut = draw(&d, 0, 9) == 0};
    dice own = {d.state ^ (sends ? 0x5555 : 0xAAAA)};
    n += out->cut && sends ? 4096 : 0;
    out->blocks[0] = block_of_long_runs(&own, n);
    block *b = &out->blocks[0];
    char *packed = content(key_of(m, round, from, 0, 0), n);
    store(b, b->expected, packed, n);
    if (sends)
        memcpy(b->memory, b->expected, (size_t)b->bytes);
    free(packed);
    out->ops[0] = b->op;
}

/* All others send to one member. */
static void gather(member *m, int round, dice *own)
{
    side sides[MEMBERS];
    tempi_flow to[1], from[MEMBERS];
    const int root = round % m->members;
    int nto = 0, nfrom = 0, n = 0;
    bool cut = false;
    double busy = 0;
    for (int i = 0; i < m->members; ++i) {
        if (i == root || (m->rank != root && i != m->rank))
            continue;
        const bool sends = m->rank != root;
        side_of_gather(m, round, i, sends, &sides[n]);
        tempi_flow *flow = sends ? &to[nto++] : &from[nfrom++];
        *flow = flow_of(&sides[n], sends ? &m->to[root] : &m->from[i], round);
        flow->gathers = true;
        flow->busy = sends ? NULL : &busy;
        cut |= !sends && sides[n].cut;
        ++n;
        if (sends) {
            prefer(m->to[root].alone, any_way(own, true));
            note_position(m, flow);
        }
    }
    unreadable = draw(own, 0, 7) == 0 ? (int)draw(own, 1, 4) : 0;
    if (m->rank == root)
        dawdle(own);
    tempi_exchange_begin(to, nto, from, nfrom);
    dawdle(own);
    if (tempi_exchange_run(to, nto, from, nfrom, rest, NULL) == cut)
        fail(cut ? "gather: too many bytes went unnoticed" : "gather: it failed");
    m->seen.gathered += stored_of(to, nto);
    for (int i = 0; i < nfrom; ++i)
        __atomic_store_n(&from[i].end->ring->access, TEMPI_ACCESS_READ | TEMPI_ACCESS_MAP,
                         __ATOMIC_RELAXED);
    unreadable = 0;
    for (int i = 0; i < n; ++i) {
        side_check(&sides[i], !sides[i].cut);
        side_free(&sides[i]);
    }
}

static void *take_part(void *argument)
{
    member *m = argument;
    dice own = {m->seed * 77 + (uint64_t)m->rank * 13 + 1};
    for (int round = 0; round < m->rounds; ++round) {
        dice all = {(m->seed + (uint64_t)round) * 0x9E3779B97F4A7C15u | 1};
        const int64_t kind = draw(&all, 0, 9);
        if (kind < 2)
            in_place(m, round, &own);
        else if (kind < 4)
            gather(m, round, &own);
        else
            apart(m, round, &own);
    }
    return NULL;
}

/* ---- members --------------------------------------------------------------------------------- */

static void connect(member *m, const tempi_segment *segment, int64_t capacity)
{
    for (int i = 0; i < m->members; ++i) {
        tempi_segment_end(segment, m->rank, i, &m->to[i]);
        tempi_segment_end(segment, i, m->rank, &m->from[i]);
        if (capacity > 0)
            m->to[i].bytes.capacity = m->from[i].bytes.capacity = m->to[i].reused.capacity =
                m->from[i].reused.capacity = (uint64_t)capacity;
        if (i < m->rank)
            m->to[i].leader = &m->from[i].ring->lead;
        if (i != m->rank)
            __atomic_store_n(&m->from[i].ring->access,
                             tempi_single_copy_access(tempi_segment_probe(segment, i)),
                             __ATOMIC_RELAXED);
    }
}

static void show(const member *m)
{
    printf("%d positions %d offered %d refused %d failed %d stored %d gathered %llu mapped\n",
           __builtin_popcountll(m->seen.positions), m->seen.offered, m->seen.refused,
           m->seen.failed, m->seen.stored, m->seen.gathered,
           (unsigned long long)tempi_stats_value(TEMPI_STAT_mapped_bytes));
    fflush(stdout);
}

static int as_threads(member *members, const tempi_segment *segment, int64_t capacity)
{
    for (int i = 0; i < members->members; ++i)
        tempi_single_copy_offer(tempi_segment_probe(segment, i));
    for (int i = 0; i < members->members; ++i)
        connect(&members[i], segment, capacity);
    tempi_threads_share();
    in_threads(members->members, take_part, members, sizeof *members);
    for (int i = 0; i < members->members; ++i)
        show(&members[i]);
    return 0;
}

static int *arrived; /* members, in memory of all */

/* Waits until the others have made their offers. */
static void meet(int members)
{
    __atomic_add_fetch(arrived, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(arrived, __ATOMIC_ACQUIRE) < members)
        sched_yield();
}

static void *as_process(void *argument)
{
    member *m = argument;
    tempi_segment segment = tempi_segment_open(m->folder, m->members, m->name);
    if (!segment.memory)
        fail("cannot open");
    tempi_single_copy_offer(tempi_segment_probe(&segment, m->rank));
    meet(m->members);
    connect(m, &segment, m->capacity);
    take_part(m);
    show(m);
    tempi_segment_close(&segment);
    return NULL;
}

static int exchange(char **argv)
{
    const bool threads = strcmp(argv[1], "threads") == 0;
    const int n = atoi(argv[3]);
    char name[TEMPI_SEGMENT_NAME];
    member members[MEMBERS];
    if (n < 2 || n > MEMBERS)
        return 2;
    for (int i = 0; i < n; ++i)
        members[i] = (member){.rank = i,
                              .members = n,
                              .folder = argv[2],
                              .name = name,
                              .capacity = atoll(argv[4]),
                              .rounds = atoi(argv[5]),
                              .seed = strtoull(argv[6], NULL, 10)};
    tempi_segment segment = tempi_segment_create(argv[2], n, name);
    arrived = mmap(NULL, sizeof *arrived, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                   0);
    if (!segment.memory || arrived == MAP_FAILED)
        fail("no segment");
    const int bad = threads ? as_threads(members, &segment, members->capacity)
                            : in_processes(n, as_process, members, sizeof *members);
    tempi_segment_unlink(argv[2], name);
    tempi_segment_close(&segment);
    return bad;
}

/* ---- the two flows of a pair ----------------------------------------------------------------- */

static int begun, ended; /* rounds: by the leader, by the other one */

static void await(const int *rounds, int n)
{
    while (__atomic_load_n(rounds, __ATOMIC_ACQUIRE) < n)
        sched_yield();
}

/* Two long flows in opposite directions, of which the leader's begins first. Each side prefers
 * another way in each round. */
static void *choose(void *argument)
{
    enum { LONG = 256 << 10 };
    member *m = argument;
    dice own = {m->seed + (uint64_t)m->rank * 7919 + 1};
    const int peer = 1 - m->rank;
    char *sent = calloc(1, LONG), *got = malloc(LONG);
    const tempi_op out = {.mem = sent, .n = LONG}, in = {.mem = got, .n = LONG};
    for (int round = 0; round < m->rounds; ++round) {
        tempi_flow to = {.end = &m->to[peer], .blocks = &out, .n = 1, .bytes = LONG},
                   from = {.end = &m->from[peer], .blocks = &in, .n = 1, .bytes = LONG};
        to.call = from.call = (uint64_t)round + 1;
        prefer(m->to[peer].choice, draw(&own, 0, TEMPI_COPY_WAYS));
        await(m->rank == 0 ? &ended : &begun, round + m->rank); /* so both rings are empty */
        tempi_exchange_begin(&to, 1, &from, 1);
        if (m->rank == 0)
            __atomic_store_n(&begun, round + 1, __ATOMIC_RELEASE);
        else
            m->seen.offered += memcmp(&to.end->ring->lead, &from.end->ring->lead,
                                      sizeof(tempi_copy_lead)) == 0;
        if (!tempi_exchange_run(&to, 1, &from, 1, rest, NULL))
            fail("alike: it failed");
        if (m->rank == 1)
            __atomic_store_n(&ended, round + 1, __ATOMIC_RELEASE);
    }
    if (m->to[peer].latencies.n == 0)
        fail("alike: no beat was timed");
    free(sent);
    free(got);
    return NULL;
}

/* FOLDER ROUNDS SEED: prints in how many rounds both flows went the same way. */
static int alike(char **argv)
{
    char name[TEMPI_SEGMENT_NAME];
    member members[2];
    tempi_segment segment = tempi_segment_create(argv[2], 2, name);
    if (!segment.memory)
        fail("no segment");
    for (int i = 0; i < 2; ++i)
        members[i] = (member){
            .rank = i, .members = 2, .rounds = atoi(argv[3]), .seed = strtoull(argv[4], NULL, 10)};
    for (int i = 0; i < 2; ++i)
        tempi_single_copy_offer(tempi_segment_probe(&segment, i));
    for (int i = 0; i < 2; ++i)
        connect(&members[i], &segment, 0);
    tempi_threads_share();
    in_threads(2, choose, members, sizeof *members);
    printf("%d alike\n", members[1].seen.offered);
    tempi_segment_unlink(argv[2], name);
    tempi_segment_close(&segment);
    return 0;
}

int main(int argc, char **argv)
{
#ifdef SCALAR
    if (tempi_kernels_use("scalar") != TEMPI_OK)
        return 2;
#endif
    tempi_core_cache_assume(128 << 10); /* pieces that the blocks exceed */
    if (argc == 4 && strcmp(argv[1], "self") == 0)
        return self(atoi(argv[2]), strtoull(argv[3], NULL, 10));
    if (argc == 5 && strcmp(argv[1], "alike") == 0)
        return alike(argv);
    return argc == 7 ? exchange(argv) : 2;
}
