#include "base/fallback.h"
#include "base/stats.h"
#include "tempi.h"

#include <stddef.h>
#include <string.h>

tempi_fallback tempi_fallbacks[TEMPI_FUNCTION_COUNT];

int tempi_fallback_count(void)
{
    return TEMPI_FUNCTION_COUNT;
}

const char *tempi_fallback_name(int i)
{
    static const char names[] = TEMPI_FUNCTION_NAMES;
    const char *name = names;
    if (i < 0 || i >= TEMPI_FUNCTION_COUNT)
        return NULL;
    while (i-- > 0)
        name += strlen(name) + 1;
    return name;
}

uint64_t tempi_fallback_calls(int i)
{
    return i >= 0 && i < TEMPI_FUNCTION_COUNT
               ? __atomic_load_n(&tempi_fallbacks[i].calls, __ATOMIC_RELAXED)
               : 0;
}

uint64_t tempi_fallback_bytes(int i)
{
    return i >= 0 && i < TEMPI_FUNCTION_COUNT
               ? __atomic_load_n(&tempi_fallbacks[i].bytes, __ATOMIC_RELAXED)
               : 0;
}

void tempi_stats_reset(void)
{
    tempi_stats_clear();
    for (int i = 0; i < TEMPI_FUNCTION_COUNT; ++i) {
        __atomic_store_n(&tempi_fallbacks[i].calls, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&tempi_fallbacks[i].bytes, 0, __ATOMIC_RELAXED);
    }
}
