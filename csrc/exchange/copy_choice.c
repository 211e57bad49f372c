#include "exchange/copy_choice.h"

#include <time.h>

enum {
    BYTES_LEAST = 32 << 10, /* shorter flows end before an answer could come */
    BYTES_LONG = 1 << 20,
    TRIALS = 3, /* of each way at first; the first one of each warms caches and pages */
    AGAIN = 64  /* flows after which the slower way is tried again */
};

int tempi_copy_class(int64_t bytes, int64_t runs)
{
    if (bytes < BYTES_LEAST || runs <= 0)
        return -1;
    int by_run = 0;
    for (int64_t run = bytes / runs; run >= 4 * TEMPI_COPY_RUN_LEAST && by_run < 3; run /= 4)
        ++by_run;
    return 2 * by_run + (bytes >= BYTES_LONG);
}

static bool once_is_faster(const double *cost)
{
    return cost[TEMPI_COPY_ONCE] < cost[TEMPI_COPY_TWICE];
}

static tempi_copy_way choose(tempi_copy_choice *choice, int class)
{
    const uint32_t *samples = choice->classes[class].samples;
    const uint32_t flow = choice->classes[class].flows++;
    if (samples[TEMPI_COPY_TWICE] < TRIALS || samples[TEMPI_COPY_ONCE] < TRIALS)
        return flow % 2 ? TEMPI_COPY_ONCE : TEMPI_COPY_TWICE;
    const bool once = once_is_faster(choice->classes[class].cost);
    return once != (flow % AGAIN == 0) ? TEMPI_COPY_ONCE : TEMPI_COPY_TWICE;
}

void tempi_copy_begin(tempi_copy_choice *choice, int class, uint64_t call, int64_t bytes)
{
    choice->way = choose(choice, class);
    choice->class = class;
    choice->call = call;
    choice->bytes = bytes;
    choice->seconds = 0;
}

void tempi_copy_learn(tempi_copy_choice *choice, double seconds)
{
    const double cost = (choice->seconds + seconds) / (double)choice->bytes;
    double *known = &choice->classes[choice->class].cost[choice->way];
    const uint32_t samples = ++choice->classes[choice->class].samples[choice->way];
    if (samples <= 2)
        *known = cost; /* the first one does not count */
    else if (samples <= TRIALS)
        *known = cost < *known ? cost : *known;
    else if (cost < *known)
        *known += (cost - *known) / 2;
    else /* a process may have lost its core meanwhile */
        *known += ((cost < 2 * *known ? cost : 2 * *known) - *known) / 16;
    choice->call = 0;
}

double tempi_copy_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
