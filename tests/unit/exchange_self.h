/* exchange_self.h: what exchange_driver.c does within one process. */
#ifndef TEMPI_TEST_EXCHANGE_SELF_H
#define TEMPI_TEST_EXCHANGE_SELF_H

#include "exchange/exchange.h"
#include "exchange/far_copy.h"
#include "exchange/invitation.h"
#include "exchange/local_copy.h"
#include "exchange/ring_times.h"
#include "exchange_blocks.h"

#include <pthread.h>

static char *packed_of(const block *b)
{
    char *packed = malloc((size_t)b->op.n + 1);
    if (b->op.layout)
        tempi_pack(b->op.layout, b->op.count, b->op.mem, 0, b->op.n, packed);
    else
        memcpy(packed, b->op.mem, (size_t)b->op.n);
    return packed;
}

/* In pieces of any length. */
static bool walks(const block *b, dice *d)
{
    tempi_nest_shape shape;
    tempi_nest_walk walk;
    if (!tempi_nest_describe(&b->op, &shape))
        return false;
    char *packed = packed_of(b);
    int64_t done = 0;
    tempi_nest_begin(&walk, &shape);
    while (walk.left > 0) {
        const int64_t n = draw(d, 1, walk.left);
        if (done + n > b->op.n ||
            memcmp(packed + done, (const char *)(uintptr_t)walk.at, (size_t)n) != 0)
            fail("a walk leaves the block");
        done += n;
        tempi_nest_step(&walk, n);
    }
    if (done != b->op.n || shape.run * shape.runs != b->op.n)
        fail("a walk ends early");
    free(packed);
    return true;
}

/* Long ones often enough that the choice has tried both kinds of stores. */
static void copy_large(const block *from, block *to)
{
    tempi_copy_choice choice = {0};
    char *before = malloc((size_t)to->bytes + 1);
    memcpy(before, to->memory, (size_t)to->bytes);
    for (int i = 0; i < 2 * TEMPI_COPY_TRIALS; ++i) {
        memcpy(to->memory, before, (size_t)to->bytes);
        tempi_local_copy_large(&choice, &from->op, &to->op, 1);
        if (memcmp(to->memory, to->expected, (size_t)to->bytes) != 0)
            fail("wrong bytes of a large copy");
    }
    free(before);
}

enum { COPY_WAYS = 6 };

/* By the kernel, as another process would; false: the layouts have no such way. */
static bool copy_far(const block *from, const block *to, int64_t way)
{
    tempi_nest_shape source, target;
    tempi_nest_walk reads, stores;
    const bool reading = way != 5 && tempi_nest_describe(&from->op, &source),
               storing = way != 4 && tempi_nest_describe(&to->op, &target);
    if (reading)
        tempi_nest_begin(&reads, &source);
    if (storing)
        tempi_nest_begin(&stores, &target);
    if ((way != 5 && !reading) || (way != 4 && !storing))
        return false;
    if (!(way == 3   ? tempi_single_copy_read(getpid(), &reads, &stores, from->op.n)
          : way == 4 ? tempi_far_read(getpid(), &reads, &to->op)
                     : tempi_far_write(getpid(), &stores, &from->op)))
        fail("cannot reach this process");
    return true;
}

/* Returns whether it went from layout to layout. */
static bool check_copy(const block *from, block *to, int64_t way)
{
    char *packed = packed_of(from);
    store(to, to->expected, packed, from->op.n);
    free(packed);
    if (way == 0)
        tempi_local_copy(&from->op, &to->op, 1);
    else if (way == 1)
        copy_large(from, to);
    else if (way == 2) {
        if (!tempi_copy_between(&from->op, &to->op, to->bytes % 2))
            return false;
    } else if (!copy_far(from, to, way))
        return false;
    if (memcmp(to->memory, to->expected, (size_t)to->bytes) != 0)
        fail("wrong bytes within the process");
    return way == 2;
}

/* Some of them shorter than what comes to them. */
static void check_copies(dice *d, uint64_t key)
{
    enum { MOST = 20 };
    block from[MOST], to[MOST];
    tempi_op sources[MOST], targets[MOST];
    const int n = (int)draw(d, 1, MOST);
    bool fits = true;
    for (int i = 0; i < n; ++i) {
        const int64_t bytes = draw_bytes(d), less = draw(d, 0, 60) == 0 ? bytes / 2 : bytes;
        from[i] = block_make(d, bytes);
        to[i] = block_make(d, less);
        fits &= less == bytes;
        char *packed = content(key + (uint64_t)i, bytes);
        store(&from[i], from[i].memory, packed, bytes);
        store(&to[i], to[i].expected, packed, less);
        free(packed);
        sources[i] = from[i].op;
        targets[i] = to[i].op;
    }
    if (tempi_local_copy(sources, targets, n) != fits)
        fail("a block that is cut is not told");
    for (int i = 0; i < n; ++i) {
        if (memcmp(to[i].memory, to[i].expected, (size_t)to[i].bytes) != 0)
            fail("wrong bytes of blocks in turns");
        block_free(&from[i]);
        block_free(&to[i]);
    }
}

/* Pieces of any length at any position, put by one end and taken by the other. */
static void ring_check(dice *d)
{
    enum { CAPACITY = 4096 };
    tempi_ring *ring = aligned_alloc(TEMPI_RING_ALIGN, sizeof *ring + CAPACITY + TEMPI_RING_ALIGN);
    memset(ring, 0, sizeof *ring + CAPACITY + TEMPI_RING_ALIGN);
    tempi_ring_end one;
    tempi_ring_begin(&one, ring, CAPACITY, NULL, 0);
    tempi_ring_bytes sender = one.bytes, receiver = sender;
    for (uint64_t turn = 0; turn < 4000; ++turn) {
        char taken[CAPACITY + 1] = "", *put;
        const int64_t room = tempi_ring_room(&sender),
                      end = CAPACITY - (int64_t)sender.own % CAPACITY + draw(d, -1, 1);
        const int64_t n = draw(d, 0, 3) == 0 && end > 0 && end <= room
                              ? end
                              : draw(d, 1, room > 0 ? room : 1);
        if (room < CAPACITY / 2 || room > CAPACITY || tempi_ring_waiting(&receiver) != 0)
            fail("an empty ring is not"); /* the sender may not have looked again */
        put = content(turn, n);
        tempi_ring_put(&sender, put, n);
        tempi_ring_written(&sender, 0);
        if (tempi_ring_waiting(&receiver) != n || tempi_ring_room(&sender) > CAPACITY - n)
            fail("a ring counts wrong");
        tempi_ring_take(&receiver, taken, n);
        tempi_ring_read(&receiver, 0);
        if (memcmp(put, taken, (size_t)n) != 0 || taken[n] != 0 || ring->data[CAPACITY] != 0)
            fail("a ring changes bytes");
        free(put);
    }
    free(ring);
}

/* Another process may have the number of the one that has invited. */
static void check_invitation(void)
{
    enum { BYTES = TEMPI_INVITED_LEAST };
    char *sent = malloc(BYTES), *there = calloc(1, BYTES);
    const tempi_op from = {.mem = sent, .n = BYTES}, to = {.mem = there, .n = BYTES};
    tempi_invitation invitation = {0};
    memset(sent, POISON, BYTES);
    tempi_invite(&invitation, 1, &to, 1);
    invitation.process.value ^= 1;
    if (tempi_invitation_follow(&invitation, &from) || there[0] != 0)
        fail("it stores in another process");
    invitation.process.value ^= 1;
    if (!tempi_invitation_follow(&invitation, &from) || memcmp(sent, there, BYTES) != 0)
        fail("an invitation is not followed");
    free(sent);
    free(there);
}

/* Every length, at its place, of its call, until the next one. */
static void check_brief_lengths(void)
{
    tempi_brief brief = {0};
    char sent[TEMPI_BRIEF_MOST], there[TEMPI_BRIEF_MOST];
    for (int n = 1; n <= TEMPI_BRIEF_MOST; ++n) {
        const uint64_t place = 64 * (uint64_t)n, call = 7 + (uint64_t)n;
        memset(sent, n, sizeof sent);
        tempi_brief_write(&brief, place, call, sent, n);
        if (!tempi_brief_read(&brief, place, call, n, there) || memcmp(sent, there, (size_t)n) != 0)
            fail("a short message is not where it was written");
        if (tempi_brief_read(&brief, place - 64, call, n, there) ||
            tempi_brief_read(&brief, place, call - 1, n, there) ||
            tempi_brief_read(&brief, place, call, n - 1, there))
            fail("a short message is taken for another one");
    }
}

enum { BRIEF_WRITES = 300000 };

/* Each word is the number of the message. */
static void *write_briefs(void *brief)
{
    uint64_t words[TEMPI_BRIEF_WORDS];
    for (uint64_t i = 1; i <= BRIEF_WRITES; ++i) {
        for (int k = 0; k < TEMPI_BRIEF_WORDS; ++k)
            words[k] = i;
        tempi_brief_write(brief, i, 1, (const char *)words, sizeof words);
    }
    return NULL;
}

/* One that is overwritten meanwhile is not read. */
static void check_brief_is_whole(void)
{
    tempi_brief brief = {0};
    uint64_t words[TEMPI_BRIEF_WORDS], place = 0;
    pthread_t writer;
    if (pthread_create(&writer, NULL, write_briefs, &brief) != 0)
        fail("no thread");
    while (place < BRIEF_WRITES) {
        const uint64_t at = __atomic_load_n(&brief.at, __ATOMIC_RELAXED);
        place = at > 0 ? at - 1 : place;
        if (at == 0 || !tempi_brief_read(&brief, place, 1, sizeof words, (char *)words))
            continue;
        for (int k = 0; k < TEMPI_BRIEF_WORDS; ++k)
            if (words[k] != place)
                fail("a short message is read in part");
    }
    pthread_join(writer, NULL);
}

/* Both rings of a pair, and what the process at the other ends does with them. */
typedef struct far_side {
    tempi_ring_end to, from; /* this process */
    char sent[TEMPI_BRIEF_MOST];
} far_side;

static tempi_ring_end new_ring(void)
{
    enum { CAPACITY = 4096 };
    tempi_ring *ring = aligned_alloc(TEMPI_RING_ALIGN, sizeof *ring + CAPACITY);
    memset(ring, 0, sizeof *ring + CAPACITY);
    tempi_ring_end end;
    tempi_ring_begin(&end, ring, CAPACITY, NULL, 0);
    return end;
}

/* While this process cannot go on: makes room for it. */
static void make_room(void *state, int64_t idle)
{
    far_side *other = state;
    if (idle == 8)
        tempi_ring_read(&other->from.bytes, tempi_ring_waiting(&other->from.bytes));
}

/* What a short message replaces is sent before, though the ring is full when that has come. */
static void check_brief_in_place(void)
{
    char memory[TEMPI_BRIEF_MOST], there[TEMPI_BRIEF_MOST], filler[4096] = "";
    far_side other = {.to = new_ring(), .from = new_ring()};
    tempi_ring_end to = other.from, from = other.to;
    memset(memory, 'a', sizeof memory);
    memset(other.sent, 'b', sizeof other.sent);
    const tempi_op theirs = {.mem = other.sent, .n = sizeof other.sent},
                   own = {.mem = memory, .n = sizeof memory};
    tempi_flow come = {.end = &other.to, .blocks = &theirs, .n = 1, .bytes = theirs.n, .call = 1},
               out = {.end = &to, .blocks = &own, .n = 1, .bytes = own.n, .call = 1}, in = out;
    in.end = &from;
    in.source = &out;
    out.streams = true;
    tempi_ring_put(&to.bytes, filler, sizeof filler);
    tempi_ring_written(&to.bytes, 0);
    tempi_exchange_begin(&come, 1, NULL, 0);
    tempi_exchange_begin(&out, 1, &in, 1);
    if (!tempi_exchange_run(&out, 1, &in, 1, make_room, &other) ||
        !tempi_brief_read(&to.ring->brief, sizeof filler, 1, own.n, there) || there[0] != 'a' ||
        memory[0] != 'b')
        fail("a short message replaces what is not sent yet");
    free(to.ring);
    free(from.ring);
}

/* A flow of that call, by TEMPI_COPY_TWICE, of which the receiver tells its time. */
static void time_flow(tempi_ring_end *end, uint64_t call, int32_t latency, bool learns)
{
    *tempi_ring_timed(end, call) = (struct tempi_timed_flow){
        .call = call, .bytes = 1, .seconds = 1, .learns = learns, .other_llc = end->other_llc};
    tempi_ring_report(end->ring, call, latency, latency);
    tempi_ring_learn(end, call + 1);
}

/* What was learnt where two cores share a cache stays as it was where they do not. */
static void check_localities(void)
{
    tempi_ring_end end = new_ring();
    uint64_t call = 0;
    end.choice[0].classes[0].flows = end.choice[1].classes[0].flows = 2;
    while (call < 10)
        time_flow(&end, ++call, 10, true);
    time_flow(&end, ++call, 20, false);
    const float near = end.choice[0].classes[0].cost[TEMPI_COPY_TWICE];
    if (tempi_ring_choice(&end, false, 0) != &end.choice[0] || near != 11.0F)
        fail("nearby: it is not known");
    while (call < 20)
        time_flow(&end, ++call, 200, true);
    end.choice[0].classes[1].flows = 2;
    end.choice[0].classes[1].level = end.choice[0].classes[1].cost[TEMPI_COPY_TWICE] = 5;
    if (tempi_ring_choice(&end, false, 1) != &end.choice[1] ||
        tempi_ring_choice(&end, true, 1) != &end.alone[1] ||
        end.choice[1].classes[0].cost[TEMPI_COPY_TWICE] != 201.0F)
        fail("far away: it is not noticed");
    if (end.choice[1].classes[1].cost[TEMPI_COPY_TWICE] != 5)
        fail("far away: what is known nearby is no first guess");
    for (; call < 30; ++call) /* too few */
        time_flow(&end, call + 1, call % 5 == 0 ? 10 : -1, true);
    if (tempi_ring_choice(&end, false, 0) != &end.choice[1])
        fail("far away: one late look, and it is nearby");
    free(end.ring);
}

/* What is learned of a flow that takes 1 second here and 10 there, in seconds. */
static float learned_of(tempi_copy_way way, bool one_way)
{
    tempi_ring_end end = new_ring();
    tempi_copy_choice *choice = one_way ? end.alone : end.choice;
    choice->classes[0].flows = 2;
    for (uint64_t call = 1; call < 4; ++call) {
        *tempi_ring_timed(&end, call) = (struct tempi_timed_flow){
            .call = call, .bytes = 1, .seconds = 1, .way = way, .learns = true, .one_way = one_way};
        tempi_ring_report(end.ring, call, 10, -1);
        tempi_ring_learn(&end, call + 1);
    }
    const float learned = choice->classes[0].cost[way];
    free(end.ring);
    return learned;
}

static void check_one_way(void)
{
    if (learned_of(TEMPI_COPY_TWICE, false) != 11.0F || learned_of(TEMPI_COPY_TWICE, true) != 10.0F)
        fail("both sides of a flow through the ring work at the same time");
    if (learned_of(TEMPI_COPY_ONCE, false) != 11.0F || learned_of(TEMPI_COPY_ONCE, true) != 10.0F)
        fail("a sender does other work while the receiver reads what it offers");
    if (learned_of(TEMPI_COPY_PACKED, true) != 11.0F)
        fail("a receiver that reads packed bytes waits for them");
}

/* What a sender has done besides counts, as the receiver may wait for it. */
static void check_busy(void)
{
    enum { LONG = 8192 };
    far_side other = {.to = new_ring(), .from = new_ring()};
    tempi_ring_end to = other.from;
    char *memory = calloc(1, LONG);
    double busy = 5;
    const tempi_op own = {.mem = memory, .n = LONG};
    tempi_flow out = {.end = &to, .blocks = &own, .n = 1, .bytes = LONG, .call = 1};
    out.one_way = true;
    out.busy = &busy;
    to.ring->access = TEMPI_ACCESS_READ;
    tempi_exchange_begin(&out, 1, NULL, 0);
    if (!tempi_exchange_run(&out, 1, NULL, 0, make_room, &other) ||
        tempi_ring_timed(&to, 1)->seconds <= 5)
        fail("a sender has done nothing else");
    free(memory);
    free(other.to.ring);
    free(other.from.ring);
}

/* Short flows seldom have a beat, long ones each time. */
static void check_beats(void)
{
    tempi_ring_end end = new_ring();
    int beats = 0;
    for (uint64_t call = 1; call <= 1000; ++call) {
        const bool beat = tempi_ring_beat(&end, call, 8192);
        if (beat != (end.ring->beat == call))
            fail("a beat that was not written");
        beats += beat;
        end.latencies.n = beats < TEMPI_LLC_SAMPLES ? beats : TEMPI_LLC_SAMPLES;
    }
    if (beats < 1000 * 3 / 65 || beats > TEMPI_LLC_SAMPLES + 1000 * 3 / 64 ||
        !tempi_ring_beat(&end, 1001, 1 << 20) || !tempi_ring_beat(&end, 1002, 1 << 20) ||
        tempi_ring_time_beat(end.ring) < 0)
        fail("beats are too seldom, or too often");
    free(end.ring);
}

static int self(int rounds, uint64_t seed)
{
    dice d = {seed * 0x9E3779B97F4A7C15u | 1};
    int nests = 0, between = 0;
    for (int round = 0; round < rounds; ++round) {
        const int64_t n = draw_bytes(&d);
        block from = block_make(&d, n), to = block_make(&d, n);
        char *packed = content((uint64_t)round, n);
        store(&from, from.memory, packed, n);
        free(packed);
        nests += walks(&from, &d);
        between += check_copy(&from, &to, draw(&d, 0, COPY_WAYS - 1));
        block_free(&from);
        block_free(&to);
        if (round % 16 == 0)
            check_copies(&d, (uint64_t)round);
    }
    ring_check(&d);
    check_brief_lengths();
    check_brief_is_whole();
    check_brief_in_place();
    check_localities();
    check_one_way();
    check_busy();
    check_beats();
    check_invitation();
    printf("%d nests %d between\n", nests, between);
    return 0;
}

#endif
