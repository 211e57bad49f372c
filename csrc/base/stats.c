#include "base/stats.h"
#include "tempi.h"

#include <stddef.h>
#include <string.h>

uint64_t tempi_stats[TEMPI_STATS_COUNT];
/* Values at the last reset, which must not write the counters of other threads. */
static uint64_t reset_at[TEMPI_STATS_COUNTED];

static const struct {
    const char *name, *help;
} names[] = {
#define ROW(name, help) {#name, help},
    TEMPI_STATS_TABLE(ROW)
#undef ROW
};

int tempi_stats_count(void)
{
    return TEMPI_STATS_COUNT;
}

const char *tempi_stats_name(int i)
{
    return i >= 0 && i < TEMPI_STATS_COUNT ? names[i].name : NULL;
}

const char *tempi_stats_help(int i)
{
    return i >= 0 && i < TEMPI_STATS_COUNT ? names[i].help : NULL;
}

static uint64_t *outside_threads(int i)
{
    return i == TEMPI_STAT_passed ? &tempi_passing.passed : &tempi_stats[i];
}

static uint64_t counted(int i)
{
    return __atomic_load_n(outside_threads(i), __ATOMIC_RELAXED) + tempi_thread_cache_count(i) -
           __atomic_load_n(&reset_at[i], __ATOMIC_RELAXED);
}

uint64_t tempi_stats_value(int i)
{
    if (i < 0 || i >= TEMPI_STATS_COUNT)
        return 0;
    const bool passed = i == TEMPI_STAT_calls_seen || i == TEMPI_STAT_fallback_rule;
    return counted(i) + (passed ? counted(TEMPI_STAT_passed) : 0);
}

void tempi_stats_clear(void)
{
    for (int i = 0; i < TEMPI_STATS_COUNTED; ++i) {
        __atomic_store_n(outside_threads(i), 0, __ATOMIC_RELAXED);
        __atomic_store_n(&reset_at[i], tempi_thread_cache_count(i), __ATOMIC_RELAXED);
    }
}
