/* timing.c: subjects take turns, so that a disturbance of the machine affects all of them.
 *
 * 1. Run one exchange of each subject and verify it. A wrong one is never timed. Then a thousand of
 *    tempi's, within the budget: it tries its methods on a program's first ones (docs/model.md).
 * 2. From a few exchanges find how many rounds the budget allows.
 * 3. Each round gives every subject a block: one exchange to warm its buffers up, then BLOCK timed
 *    ones, each after a barrier. The order rotates from round to round.
 * 4. Every sample is the maximum over the ranks.
 * 5. Verify everything once more: the timed exchanges ran warm, the first check did not.
 *
 * On an emulated device a few untimed exchanges replace steps 2 to 4. */
#include "cuda.h"
#include "halo.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4, ROUNDS_MIN = 3, ROUNDS_MAX = 250 };
enum { SETTLING = 1000, TOGETHER = 25 };

static void exchange(struct halo *h, enum subject subject, double seconds[PHASES])
{
    if (subject == SUBJECT_HAND)
        exchange_by_hand(h, seconds);
    else
        h->options.exchange->run(h, subject, seconds);
}

/* tempi is on while, and only while, its own subject runs. */
static void enter(enum subject subject)
{
    if (subject != SUBJECT_TEMPI)
        engine_disable();
}

static void leave(enum subject subject)
{
    if (subject != SUBJECT_TEMPI)
        engine_enable();
}

static void check(struct halo *h, struct timing *t, int generation)
{
    double seconds[PHASES];
    verify_fill(h, generation);
    MPI_Barrier(h->comm);
    enter(t->subject);
    exchange(h, t->subject, seconds);
    leave(t->subject);
    const long long all = (long long)h->cells * h->options.fields;
    if (h->rank == 0 && h->options.corrupt >= 0 && h->options.corrupt < all)
        verify_spoil(h, h->options.corrupt);
    t->wrong = verify_check(h, generation, t->name);
}

static void check_again(struct halo *h, struct timing *t, int generation)
{
    if (t->wrong > 0)
        return;
    check(h, t, generation);
    if (t->wrong > 0)
        t->samples = 0;
}

static void settle(struct halo *h, const struct timing *t)
{
    double seconds[PHASES];
    const double began = MPI_Wtime();
    int goes_on = 1;
    for (int done = 0; done < SETTLING && goes_on; done += TOGETHER) {
        for (int k = 0; k < TOGETHER; k++)
            exchange(h, t->subject, seconds);
        goes_on = MPI_Wtime() - began < h->options.seconds;
        MPI_Bcast(&goes_on, 1, MPI_INT, 0, h->comm);
    }
}

static void count(struct halo *h, struct timing *t)
{
    const int n = engine_counters();
    uint64_t *mine = checked_alloc((size_t)n * sizeof *mine);
    double seconds[PHASES];
    t->counters = checked_alloc((size_t)n * sizeof *t->counters);
    for (int i = 0; i < n; i++)
        mine[i] = engine_counter(i);
    exchange(h, t->subject, seconds);
    for (int i = 0; i < n; i++)
        mine[i] = engine_counter(i) - mine[i];
    MPI_Reduce(mine, t->counters, n, MPI_UINT64_T, MPI_SUM, 0, h->comm);
    free(mine);
}

/* Seconds of one exchange of all subjects together, on the slowest rank. */
static double probe(struct halo *h, const struct timing *timings, int n)
{
    double best = 0, total = 0;
    for (int i = 0; i < n; i++) {
        double least = 0;
        for (int k = 0; k < 3 && timings[i].wrong == 0; k++) {
            double seconds[PHASES];
            MPI_Barrier(h->comm);
            enter(timings[i].subject);
            exchange(h, timings[i].subject, seconds);
            leave(timings[i].subject);
            least = k == 0 || seconds[PHASE_EXCHANGE] < least ? seconds[PHASE_EXCHANGE] : least;
        }
        total += least;
    }
    MPI_Allreduce(&total, &best, 1, MPI_DOUBLE, MPI_MAX, h->comm);
    return best;
}

static int choose_rounds(double budget, double one_of_each)
{
    const double rounds = budget / ((BLOCK + 1) * (one_of_each + 1e-9));
    return rounds < ROUNDS_MIN ? ROUNDS_MIN : rounds > ROUNDS_MAX ? ROUNDS_MAX : (int)rounds;
}

static void block(struct halo *h, struct timing *t, int round)
{
    double seconds[PHASES];
    enter(t->subject);
    for (int k = -1; k < BLOCK; k++) {
        MPI_Barrier(h->comm);
        exchange(h, t->subject, seconds);
        for (int p = 0; p < PHASES && k >= 0; p++)
            t->seconds[p][round * BLOCK + k] = seconds[p];
    }
    leave(t->subject);
}

static void allocate(struct timing *t, int samples)
{
    t->samples = t->wrong == 0 ? samples : 0;
    for (int p = 0; p < PHASES; p++)
        t->seconds[p] = checked_alloc((size_t)t->samples * sizeof(double));
}

static void reduce(const struct halo *h, struct timing *t)
{
    for (int p = 0; p < PHASES; p++) {
        if (h->rank == 0)
            MPI_Reduce(MPI_IN_PLACE, t->seconds[p], t->samples, MPI_DOUBLE, MPI_MAX, 0, h->comm);
        else
            MPI_Reduce(t->seconds[p], NULL, t->samples, MPI_DOUBLE, MPI_MAX, 0, h->comm);
    }
}

/* Steps 2 to 4. */
static void measure(struct halo *h, struct timing *timings, int n)
{
    const int rounds = choose_rounds(h->options.seconds, probe(h, timings, n));
    for (int i = 0; i < n; i++)
        allocate(&timings[i], rounds * BLOCK);
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < n; i++) {
            struct timing *t = &timings[(i + round) % n];
            if (t->wrong == 0)
                block(h, t, round);
        }
    for (int i = 0; i < n; i++)
        reduce(h, &timings[i]);
}

void timing_run(struct halo *h, struct timing *timings, int n)
{
    for (int i = 0; i < n; i++) {
        check(h, &timings[i], i + 1);
        if (timings[i].subject != SUBJECT_TEMPI)
            continue;
        if (!h->options.check_only && !(h->options.memory->copy && cuda_emulated()))
            settle(h, &timings[i]);
        count(h, &timings[i]);
    }
    if (h->options.check_only)
        return;
    if (h->options.memory->copy && cuda_emulated())
        (void)probe(h, timings, n);
    else
        measure(h, timings, n);
    for (int i = 0; i < n; i++)
        check_again(h, &timings[i], n + i + 1);
}

void timing_free(struct timing *t)
{
    for (int p = 0; p < PHASES; p++)
        free(t->seconds[p]);
    free(t->counters);
}
