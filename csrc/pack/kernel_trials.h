/* kernel_trials.h: selects the kernel of a loop by timing the program's own calls.
 *
 * Some kernels gain or lose a factor of two by one processor's prefetchers and caches, and no rule
 * found on one machine holds on the next. For such loops the kernels of an ISA name several
 * candidates, and:
 *
 * 1. Loops of one shape (runs, strides, an octave of their number) share one record.
 * 2. The first call takes the default and is not counted: it may be the first to touch its pages.
 * 3. Then the candidates take turns, one per call, or several per call if calls are short. After
 *    each round those far behind the best are dropped.
 * 4. When one is left, or after TUNE_ROUNDS rounds of equals, the best is settled; the default
 * stays unless another beats it by TUNE_MARGIN.
 * 5. Which one is best may change while a program runs: 1 MiB in runs of 64 every page took 80 and
 *    97 us by two of them, and 105 and 71 a second later (Zen 3, 2 of a processor's cores: others
 *    use the same caches). So now and then those that were near take one more turn each. One that
 *    is faster by TUNE_OVERTAKES in two such rounds is settled instead. A round follows after
 *    TUNE_REST times its own calls, after ever more while nothing changes, and after TUNE_SURE
 *    times where another one has been faster.
 *
 * All candidates move the same bytes, so any of them gives a correct result. TEMPI_AUTOTUNE=0 takes
 * the defaults. */
#ifndef TEMPI_PACK_TUNE_H
#define TEMPI_PACK_TUNE_H
#include "base/quartile.h"
#include "pack/nest.h"

typedef struct tempi_tuned {
    _Atomic(tempi_loop_fn) settled; /* NULL: still being measured */
    _Atomic int rest;               /* calls until the next round, once one is settled */
    tempi_candidates candidates;
    /* The shape: bytes of a run, log2 of the number of runs, and the strides. */
    int64_t runs, octave;
    int64_t d, s;
    atomic_flag
        busy; /* one thread measures at a time; others take the settled one or the default */
    bool warm;
    int next, round, counted; /* the candidate whose turn it is, its calls that count */
    int calls;                /* of this round */
    int used, rival;          /* the settled one; the one that was faster in the last round */
    int quiet;                /* rests are so many times longer, as nothing changed */
    double turn_begun;        /* seconds; 0: not yet */
    bool dropped[TEMPI_CANDIDATES];
    tempi_quartile took[TEMPI_CANDIDATES]; /* seconds a run */
} tempi_tuned;

/* The record of that shape; NULL: take the default, as tuning is off or all records are in use. */
tempi_tuned *tempi_tune_find(const tempi_loop *loop, const tempi_candidates *candidates);

/* Makes one call and times it, unless another thread does or there is nothing to measure. */
void tempi_tune_measure(tempi_tuned *tuned, char *dst, const char *src, const tempi_loop *loop);

static inline void tempi_tune_run(tempi_tuned *tuned, char *dst, const char *src,
                                  const tempi_loop *loop)
{
    const tempi_loop_fn settled = atomic_load_explicit(&tuned->settled, memory_order_acquire);
    const int rest = atomic_load_explicit(&tuned->rest, memory_order_relaxed);
    if (settled && rest > 0) {
        /* Threads may count a call less: that costs nothing, an atomic addition does. */
        atomic_store_explicit(&tuned->rest, rest - 1, memory_order_relaxed);
        settled(dst, src, loop);
    } else {
        tempi_tune_measure(tuned, dst, src, loop);
    }
}

#endif
