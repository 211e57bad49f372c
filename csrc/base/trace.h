/* TEMPI_TRACE=FILE writes a Chrome trace (chrome://tracing, Perfetto) of packs, unpacks and posts.
 * Costs one test when off. */
#ifndef TEMPI_BASE_TRACE_H
#define TEMPI_BASE_TRACE_H

#include "base/clock.h"

#include <stdbool.h>
#include <stdint.h>

extern bool tempi_trace_on;

/* Opens FILE.<rank>; warns once if it cannot be written. */
void tempi_trace_open(const char *file, int rank);
void tempi_trace_close(void);

void tempi_trace_write(double start, const char *what, const char *call, int64_t bytes);

static inline double tempi_trace_begin(void)
{
    return tempi_trace_on ? tempi_clock() : 0;
}

static inline void tempi_trace_end(double start, const char *what, const char *call, int64_t bytes)
{
    if (tempi_trace_on)
        tempi_trace_write(start, what, call, bytes);
}

#endif
