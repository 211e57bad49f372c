#include "exchange/copy_choice.h"

#include <time.h>

enum {
    /* Within a class one way is seldom far from the best: a flow of 64 KiB stays in the caches of
     * one core, one of 512 KiB in those that cores share, longer ones in neither. */
    BYTES_MIDDLE = 128 << 10,
    BYTES_LONG = 1 << 20,
    RUN_SHORT = 32, /* bytes; the next classes begin at four times as many */
    BY_RUN_MOST = TEMPI_COPY_CLASSES / TEMPI_COPY_SIZES - 1,
    SAMPLES = TEMPI_COPY_TRIALS - 1, /* of each way at first */
    PAIR = 2,                        /* flows that go the way that is tried again */
    AGAIN = 128,                     /* flows after which it is */
    EARLY = 512,                     /* flows, up to which that is more often */
    AGAIN_EARLY = 32
};

int tempi_copy_class(int64_t bytes, int64_t offered, int64_t runs)
{
    int by_run = 0;
    if (bytes < TEMPI_COPY_LEAST)
        return -1;
    if (offered >= TEMPI_COPY_LEAST && runs > 0) {
        by_run = TEMPI_COPY_OFFERED / TEMPI_COPY_SIZES;
        for (int64_t run = offered / runs; run >= RUN_SHORT && by_run < BY_RUN_MOST; run /= 4)
            ++by_run;
    }
    return TEMPI_COPY_SIZES * by_run + (bytes >= BYTES_MIDDLE) + (bytes >= BYTES_LONG);
}

static bool is_among(unsigned ways, tempi_copy_way way)
{
    return (ways >> way & 1) != 0;
}

/* The n-th of them, beginning again after the last. */
static tempi_copy_way in_turn(unsigned ways, uint32_t n)
{
    for (n %= (uint32_t)__builtin_popcount(ways); n > 0; --n)
        ways &= ways - 1; /* without its lowest */
    return (tempi_copy_way)__builtin_ctz(ways);
}

tempi_copy_way tempi_copy_choose(tempi_copy_choice *choice, int class, unsigned ways)
{
    const uint32_t *samples = choice->classes[class].samples;
    const double *cost = choice->classes[class].cost;
    const uint32_t flow = choice->classes[class].flows++,
                   again = flow < EARLY ? AGAIN_EARLY : AGAIN;
    tempi_copy_way best = TEMPI_COPY_WAYS;
    for (tempi_copy_way way = 0; way < TEMPI_COPY_WAYS; ++way) {
        if (!is_among(ways, way))
            continue;
        if (samples[way] < SAMPLES)
            return in_turn(ways, flow / TEMPI_COPY_TRIALS);
        if (best == TEMPI_COPY_WAYS || cost[way] < cost[best])
            best = way;
    }
    return flow % again < PAIR ? in_turn(ways, flow / again) : best;
}

static void take_sample(double *known, uint32_t samples, double cost)
{
    if (samples == 1)
        *known = cost;
    else if (samples <= SAMPLES)
        *known = cost < *known ? cost : *known;
    else if (cost < *known)
        *known += (cost - *known) / 2;
    else /* a process may have lost its core meanwhile */
        *known += ((cost < 2 * *known ? cost : 2 * *known) - *known) / 16;
}

void tempi_copy_learn(tempi_copy_choice *choice, int class, tempi_copy_way way, double seconds,
                      int64_t bytes)
{
    const bool warm = choice->classes[class].latest == way && choice->classes[class].flows > 1;
    choice->classes[class].latest = way;
    if (warm)
        take_sample(&choice->classes[class].cost[way], ++choice->classes[class].samples[way],
                    seconds / (double)bytes);
}

double tempi_copy_packing(const tempi_copy_choice *choice, int class, int64_t bytes)
{
    const double unknown = 1e-10; /* seconds a byte */
    const double *cost = choice->classes[class].cost;
    const double least = cost[TEMPI_COPY_NONTEMPORAL] > 0 &&
                                 cost[TEMPI_COPY_NONTEMPORAL] < cost[TEMPI_COPY_TWICE]
                             ? cost[TEMPI_COPY_NONTEMPORAL]
                             : cost[TEMPI_COPY_TWICE];
    return (least > 0 ? least / 2 : unknown) * (double)bytes;
}

double tempi_copy_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
