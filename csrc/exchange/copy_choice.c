#include "exchange/copy_choice.h"

#include <time.h>

enum {
    LONG_RUNS_LEAST = 32 << 10, /* bytes; shorter flows end before an answer could come */
    SHORT_RUNS_LEAST = 64 << 10,
    BYTES_LONG = 1 << 20,
    AGAIN = 64,  /* flows after which another way is tried again */
    EARLY = 512, /* flows, up to which that is more often */
    AGAIN_EARLY = 16
};

int tempi_copy_class(int64_t bytes, int64_t offered, int64_t runs)
{
    const bool long_runs = offered >= LONG_RUNS_LEAST && runs > 0;
    int by_run = 0;
    if (bytes < (long_runs ? LONG_RUNS_LEAST : SHORT_RUNS_LEAST))
        return -1;
    if (long_runs) {
        by_run = 1;
        for (int64_t run = offered / runs; run >= 4 * TEMPI_COPY_RUN_LEAST && by_run < 4; run /= 4)
            ++by_run;
    }
    return 2 * by_run + (bytes >= BYTES_LONG);
}

static int ways_of(int class)
{
    return class < 2 ? TEMPI_COPY_ONCE : TEMPI_COPY_WAYS;
}

static tempi_copy_way fastest(const double *cost, int ways)
{
    int best = 0;
    for (int way = 1; way < ways; ++way)
        if (cost[way] < cost[best])
            best = way;
    return (tempi_copy_way)best;
}

static tempi_copy_way choose(tempi_copy_choice *choice, int class)
{
    const uint32_t *samples = choice->classes[class].samples;
    const uint32_t flow = choice->classes[class].flows++;
    const int ways = ways_of(class);
    for (int way = 0; way < ways; ++way)
        if (samples[way] < TEMPI_COPY_TRIALS)
            return (tempi_copy_way)(flow % (uint32_t)ways);
    const uint32_t again = flow < EARLY ? AGAIN_EARLY : AGAIN;
    if (flow % again == 0)
        return (tempi_copy_way)(flow / again % (uint32_t)ways);
    return fastest(choice->classes[class].cost, ways);
}

void tempi_copy_begin(tempi_copy_choice *choice, int class, uint64_t call, int64_t bytes)
{
    choice->way = choose(choice, class);
    choice->class = class;
    choice->call = call;
    choice->bytes = bytes;
    choice->seconds = 0;
}

void tempi_copy_sample(double *known, uint32_t samples, double cost)
{
    if (samples <= 2)
        *known = cost; /* the first one does not count */
    else if (samples <= TEMPI_COPY_TRIALS)
        *known = cost < *known ? cost : *known;
    else if (cost < *known)
        *known += (cost - *known) / 2;
    else /* a process may have lost its core meanwhile */
        *known += ((cost < 2 * *known ? cost : 2 * *known) - *known) / 16;
}

void tempi_copy_measured(tempi_copy_choice *choice, double seconds)
{
    const double cost = (choice->seconds + seconds) / (double)choice->bytes;
    tempi_copy_sample(&choice->classes[choice->class].cost[choice->way],
                      ++choice->classes[choice->class].samples[choice->way], cost);
    choice->call = 0;
}

double tempi_copy_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
