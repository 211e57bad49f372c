/* The monotonic clock, which is the same in all processes of a node. Not inlined: most paths seldom
 * ask for the time, and should hold no more of it than a call. */
#ifndef TEMPI_BASE_CLOCK_H
#define TEMPI_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

__attribute__((noinline, unused)) static int64_t tempi_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Seconds. */
__attribute__((noinline, unused)) static double tempi_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
