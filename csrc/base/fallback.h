/* Counts, per MPI function that tempi does not act in, the calls with a derived datatype. Such
 * calls are rare compared with their cost, so all threads share one pair of counters. */
#ifndef TEMPI_BASE_FALLBACK_H
#define TEMPI_BASE_FALLBACK_H

#include "functions.h" /* generated: TEMPI_FUNCTION_<name> */

#include <stdint.h>

typedef struct tempi_fallback {
    uint64_t calls, bytes;
} tempi_fallback;

extern tempi_fallback tempi_fallbacks[TEMPI_FUNCTION_COUNT];

static inline void tempi_fallback_add(int function, int64_t bytes)
{
    tempi_fallback *f = &tempi_fallbacks[function];
    __atomic_fetch_add(&f->calls, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&f->bytes, (uint64_t)bytes, __ATOMIC_RELAXED);
}

#endif
