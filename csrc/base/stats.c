#include "base/stats.h"
#include "tempi.h"

#include <stddef.h>
#include <string.h>

uint64_t tempi_stats[TEMPI_STATS_COUNT];
/* Values at the last reset, which must not write the counters of other threads. */
static uint64_t reset_at[TEMPI_STATS_COUNT];

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

uint64_t tempi_stats_value(int i)
{
    if (i < 0 || i >= TEMPI_STATS_COUNT)
        return 0;
    return __atomic_load_n(&tempi_stats[i], __ATOMIC_RELAXED) + tempi_thread_cache_count(i) -
           __atomic_load_n(&reset_at[i], __ATOMIC_RELAXED);
}

void tempi_stats_clear(void)
{
    for (int i = 0; i < TEMPI_STATS_COUNT; ++i) {
        __atomic_store_n(&tempi_stats[i], 0, __ATOMIC_RELAXED);
        __atomic_store_n(&reset_at[i], tempi_thread_cache_count(i), __ATOMIC_RELAXED);
    }
}
