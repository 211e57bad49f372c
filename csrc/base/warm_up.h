/* What a turn of timed calls begins with: a call that sees the caches as another method left them,
 * and those of so many seconds in which the processor may not yet have powered its widest
 * registers, which takes some 10 microseconds (4 KiB in runs of 4 every 8, AVX-512, Granite Rapids:
 * 280 ns a call before, 100 ns after). Calls further apart in time are past it at once. */
#ifndef TEMPI_BASE_WARM_UP_H
#define TEMPI_BASE_WARM_UP_H

#include <stdbool.h>

#define TEMPI_WARM_UP 50e-6

/* Whether a call that took from `begun` to `ended` (seconds) belongs to it. *turn: when the turn
 * began; 0: with this call. */
static inline bool tempi_warms_up(double *turn, double begun, double ended)
{
    if (*turn == 0) {
        *turn = begun;
        return true;
    }
    return ended - *turn < TEMPI_WARM_UP;
}

#endif
