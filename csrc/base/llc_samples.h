/* Whether another core shares a last-level cache with this one, by how long lines that were written
 * there take to arrive: the core-to-core latency. It follows processes that migrate. */
#ifndef TEMPI_BASE_LLC_SAMPLES_H
#define TEMPI_BASE_LLC_SAMPLES_H

#include <stdbool.h>
#include <stdint.h>

/* A line arrives from a core with the same LLC in 20 to 60 nanoseconds, from another one in 100 to
 * 300 (Zen 3 to 5). Across a large mesh it takes 70 to 160 (Granite Rapids), and more or less as
 * the processes migrate: a class changes only when it is clear, as each has trials of its own. */
enum {
    TEMPI_LLC_OTHER = 85,
    TEMPI_LLC_CLEARLY_SAME = 65,
    TEMPI_LLC_CLEARLY_OTHER = 105, /* nanoseconds */
    TEMPI_LLC_SAMPLES = 5
};

/* From so many bytes on messages evict the lines, which then come from memory, as slowly as from
 * another LLC. */
enum { TEMPI_LLC_EVICTING = 4 << 20 };

/* Zero at first. */
typedef struct tempi_llc_samples {
    int32_t taken[TEMPI_LLC_SAMPLES]; /* nanoseconds: the last ones */
    int n;                            /* number of samples; below twice the most that are kept */
} tempi_llc_samples;

static inline bool tempi_llc_known(const tempi_llc_samples *samples)
{
    return samples->n >= TEMPI_LLC_SAMPLES;
}

/* Messages of no bytes between two samples. A message counts once more for each 4 KiB of its
 * bytes: fewer long messages fit between two migrations. */
static inline int tempi_llc_interval(const tempi_llc_samples *samples)
{
    return tempi_llc_known(samples) ? 64 : 4;
}

static inline int64_t tempi_llc_weight(int64_t bytes)
{
    return 1 + bytes / 4096;
}

static inline void tempi_llc_add(tempi_llc_samples *samples, int64_t nanoseconds)
{
    samples->taken[samples->n % TEMPI_LLC_SAMPLES] = nanoseconds < INT32_MAX ? (int32_t)nanoseconds
                                                                             : INT32_MAX;
    samples->n = samples->n + 1 < 2 * TEMPI_LLC_SAMPLES ? samples->n + 1 : TEMPI_LLC_SAMPLES;
}

/* True: another LLC, by the majority of the last samples; `before`: the result of those before. */
static inline bool tempi_llc_is_other(const tempi_llc_samples *samples, bool before)
{
    const bool first = !tempi_llc_known(samples);
    const int n = first ? samples->n : TEMPI_LLC_SAMPLES;
    const int limit = first    ? TEMPI_LLC_OTHER
                      : before ? TEMPI_LLC_CLEARLY_SAME
                               : TEMPI_LLC_CLEARLY_OTHER;
    int far = 0;
    for (int i = 0; i < n; ++i)
        far += samples->taken[i] > limit;
    return 2 * far > n;
}

#endif
