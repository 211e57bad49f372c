/* dice.h: random numbers that are the same wherever a driver begins with the same seed, and its end
 * at the first error. */
#ifndef TEMPI_TEST_DICE_H
#define TEMPI_TEST_DICE_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
    exit(1);
}

typedef struct dice {
    uint64_t state;
} dice;

static int64_t draw(dice *d, int64_t from, int64_t to) /* both included */
{
    d->state ^= d->state << 13;
    d->state ^= d->state >> 7;
    d->state ^= d->state << 17;
    return from + (int64_t)(d->state % (uint64_t)(to - from + 1));
}

#endif
