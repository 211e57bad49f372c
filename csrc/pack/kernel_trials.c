#include "pack/kernel_trials.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/hash.h"
#include "base/stats.h"
#include "base/thread.h"
#include "base/warm_up.h"

#include <limits.h>
#include <math.h>
#include <string.h>

enum { TUNE_RECORDS = 256, TUNE_PROBES = 8, TUNE_ROUNDS = 8 };

/* Margin by which another candidate must beat the default, which is the steadier of two equals. */
#define TUNE_MARGIN 0.04

/* Later rounds, of the candidates that took at most TUNE_NEAR times the best one's time: the time
 * of one that overtakes, as a share of the settled one's. */
#define TUNE_NEAR      2.0
#define TUNE_OVERTAKES 0.9
enum { TUNE_REST = 8, TUNE_QUIET = 16, TUNE_SURE = 2 };

/* Calls shorter than this, in seconds, are repeated at once: a turn is so many, after its warm-up.
 */
#define TUNE_SHORT 1e-3
enum { TUNE_REPEATS = 2 };

/* After each round, candidates slower than this times the best are dropped: the surer the times
 * are, the nearer. In its first turn or two one may have met a slower speed of the machine, as of a
 * core whose other hyperthread has work. */
static const double drop_above[TUNE_ROUNDS] = {4.0, 2.5, 1.3, 1.15, 1.1, 1.07, 1.05, 1.0};

static tempi_tuned records[TUNE_RECORDS];
static _Atomic bool in_use[TUNE_RECORDS];
static atomic_flag making = ATOMIC_FLAG_INIT;
static _Atomic int pretended = -1;
static const double *weights;

/* ---- records --------------------------------------------------------------------------------- */

static int64_t number_of_runs(const tempi_loop *loop)
{
    return loop->axis[0].n * loop->axis[1].n * loop->axis[2].n;
}

static int octave_of(const tempi_loop *loop)
{
    return 63 - __builtin_clzll((unsigned long long)number_of_runs(loop) | 1);
}

static bool same_shape(const tempi_tuned *tuned, const tempi_loop *loop,
                       const tempi_candidates *candidates)
{
    return tuned->runs == loop->run && tuned->d == loop->axis[0].d && tuned->s == loop->axis[0].s &&
           tuned->octave == octave_of(loop) && tuned->candidates.way[0] == candidates->way[0];
}

static unsigned home_of(const tempi_loop *loop)
{
    uint64_t h = tempi_hash((uint64_t)loop->run);
    h = tempi_hash_mix(h, (uint64_t)loop->axis[0].d);
    h = tempi_hash_mix(h, (uint64_t)loop->axis[0].s);
    h = tempi_hash_mix(h, (uint64_t)octave_of(loop));
    return (unsigned)(h >> 40);
}

static void fill(tempi_tuned *tuned, const tempi_loop *loop, const tempi_candidates *candidates)
{
    memset(tuned, 0, sizeof *tuned);
    tuned->candidates = *candidates;
    tuned->runs = loop->run;
    tuned->d = loop->axis[0].d;
    tuned->s = loop->axis[0].s;
    tuned->octave = octave_of(loop);
    if (pretended >= 0) {
        tuned->settled = candidates->way[pretended % candidates->n];
        tuned->rest = INT_MAX;
    }
}

tempi_tuned *tempi_tune_find(const tempi_loop *loop, const tempi_candidates *candidates)
{
    if (candidates->n < 2 || !(tempi_config.autotune || weights || pretended >= 0))
        return NULL;
    const unsigned home = home_of(loop);
    for (unsigned i = 0; i < TUNE_PROBES; i++) {
        const unsigned at = (home + i) % TUNE_RECORDS;
        if (!atomic_load_explicit(&in_use[at], memory_order_acquire)) {
            if (atomic_flag_test_and_set_explicit(&making, memory_order_acquire))
                return NULL;
            if (!in_use[at]) {
                fill(&records[at], loop, candidates);
                atomic_store_explicit(&in_use[at], true, memory_order_release);
            }
            atomic_flag_clear_explicit(&making, memory_order_release);
        }
        if (same_shape(&records[at], loop, candidates))
            return &records[at];
    }
    return NULL;
}

/* ---- measuring ------------------------------------------------------------------------------- */

static double took(const tempi_tuned *tuned, int i)
{
    return tempi_quartile_of(&tuned->took[i]);
}

static int best_of(const tempi_tuned *tuned)
{
    int best = tuned->used;
    for (int i = 0; i < tuned->candidates.n; i++)
        if (!tuned->dropped[i] && took(tuned, i) < took(tuned, best))
            best = i;
    return best;
}

/* Returns how many are left. The default, which is not dropped, counts only if it is as near: the
 * final comparison needs it. */
static int drop_slow(tempi_tuned *tuned)
{
    const double limit = took(tuned, best_of(tuned)) * drop_above[tuned->round];
    int left = 0;
    for (int i = 0; i < tuned->candidates.n; i++) {
        const bool near = !tuned->dropped[i] && took(tuned, i) <= limit;
        tuned->dropped[i] = i > 0 && !near;
        left += near;
    }
    return left;
}

/* The next one from `i` on that was not dropped has its turn. */
static void next_candidate(tempi_tuned *tuned, int i)
{
    while (i < tuned->candidates.n && tuned->dropped[i])
        i++;
    tuned->next = i;
}

static void use(tempi_tuned *tuned, int candidate)
{
    tuned->used = candidate;
    tuned->quiet = 1;
    atomic_store_explicit(&tuned->settled, tuned->candidates.way[candidate], memory_order_release);
}

/* Drops those that are not near, of all candidates, and returns how many are left. */
static int keep_near(tempi_tuned *tuned, int best)
{
    int near = 0;
    for (int i = 0; i < tuned->candidates.n; i++) {
        tuned->dropped[i] = took(tuned, i) > TUNE_NEAR * took(tuned, best);
        near += !tuned->dropped[i];
    }
    return near;
}

/* For so many times the calls of the round that has ended. */
static void rest(tempi_tuned *tuned, int rounds)
{
    memset(tuned->took, 0, sizeof tuned->took);
    atomic_store_explicit(&tuned->rest, rounds * tuned->calls, memory_order_relaxed);
}

static void settle(tempi_tuned *tuned)
{
    int best = best_of(tuned);
    if (took(tuned, best) > (1 - TUNE_MARGIN) * took(tuned, 0))
        best = 0;
    tempi_stat_add(TEMPI_STAT_kernels_tuned, 1);
    if (best > 0)
        tempi_stat_add(TEMPI_STAT_kernels_changed, 1);
    use(tuned, best);
    tuned->rival = best;
    if (keep_near(tuned, best) > 1)
        rest(tuned, TUNE_REST);
    else
        atomic_store_explicit(&tuned->rest, INT_MAX, memory_order_relaxed);
}

/* After a round of those near the settled one. */
static void compare(tempi_tuned *tuned)
{
    int best = best_of(tuned);
    if (took(tuned, best) > TUNE_OVERTAKES * took(tuned, tuned->used))
        best = tuned->used;
    const bool changes = best != tuned->used && best == tuned->rival;
    tuned->rival = best;
    if (changes) {
        tempi_stat_add(TEMPI_STAT_kernels_later, 1);
        use(tuned, best);
    } else if (best == tuned->used) {
        tuned->quiet = tuned->quiet < TUNE_QUIET ? 2 * tuned->quiet : TUNE_QUIET;
    }
    rest(tuned, best == tuned->used ? TUNE_REST * tuned->quiet : TUNE_SURE);
}

static void end_of_round(tempi_tuned *tuned)
{
    if (tuned->settled)
        compare(tuned);
    else if (drop_slow(tuned) == 1 || ++tuned->round == TUNE_ROUNDS)
        settle(tuned);
    tuned->calls = 0;
    next_candidate(tuned, 0);
}

static void begin_turn(tempi_tuned *tuned)
{
    tuned->counted = 0;
    tuned->turn_begun = 0;
}

static void note(tempi_tuned *tuned, double begun, double ended, int64_t runs)
{
    const double call = weights ? weights[tuned->next] : ended - begun;
    const bool is_short = call < TUNE_SHORT;
    if (is_short && tempi_warms_up(&tuned->turn_begun, begun, ended))
        return;
    tempi_quartile_add(&tuned->took[tuned->next], call / (double)runs);
    if (is_short && ++tuned->counted < TUNE_REPEATS)
        return;
    begin_turn(tuned);
    next_candidate(tuned, tuned->next + 1);
    if (tuned->next >= tuned->candidates.n)
        end_of_round(tuned);
}

void tempi_tune_measure(tempi_tuned *tuned, char *dst, const char *src, const tempi_loop *loop)
{
    if (atomic_flag_test_and_set_explicit(&tuned->busy, memory_order_acquire)) {
        const tempi_loop_fn settled = tuned->settled;
        (settled ? settled : tuned->candidates.way[0])(dst, src, loop);
        return;
    }
    const bool rests = tuned->settled && tuned->rest > 0; /* another thread has ended a round */
    if (!tuned->warm || rests) {
        tuned->warm = true;
        tuned->candidates.way[tuned->used](dst, src, loop);
    } else {
        const double begun = tempi_clock();
        tuned->candidates.way[tuned->next](dst, src, loop);
        tuned->calls++;
        tempi_this_thread.kernel_trials++;
        note(tuned, begun, weights ? HUGE_VAL : tempi_clock(), number_of_runs(loop));
    }
    atomic_flag_clear_explicit(&tuned->busy, memory_order_release);
}

/* ---- for tests ------------------------------------------------------------------------------- */

void tempi_tune_pretend(int candidate)
{
    pretended = candidate;
    for (int i = 0; i < TUNE_RECORDS; i++)
        in_use[i] = false;
    atomic_fetch_add_explicit(&tempi_kernels_epoch, 1, memory_order_relaxed);
}

void tempi_tune_weigh(const double *seconds_of)
{
    weights = seconds_of;
}
