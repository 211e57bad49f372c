#include "exchange/far_choice.h"

enum {
    TRIALS = 3, /* of each at first; the first one of each warms caches and pages */
    AGAIN = 32  /* messages after which the other one is tried again */
};

bool tempi_far_choose(tempi_far_choice *choice)
{
    const uint32_t message = choice->messages++;
    if (choice->samples[0] < TRIALS || choice->samples[1] < TRIALS)
        return message % 2 == 1;
    const bool faster = choice->cost[1] < choice->cost[0];
    return faster != (message % AGAIN == 0);
}

void tempi_far_learn(tempi_far_choice *choice, bool far, double seconds, int64_t bytes)
{
    const double cost = seconds / (double)bytes;
    double *known = &choice->cost[far];
    const uint32_t samples = ++choice->samples[far];
    if (samples <= 2)
        *known = cost;
    else if (cost < *known)
        *known += (cost - *known) / 2;
    else /* a process may have lost its core meanwhile */
        *known += ((cost < 2 * *known ? cost : 2 * *known) - *known) / 8;
}
