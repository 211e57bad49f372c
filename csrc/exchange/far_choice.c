#include "exchange/far_choice.h"
#include "exchange/copy_choice.h"

enum { AGAIN = 32 /* messages after which the other one is tried again */ };

bool tempi_far_choose(tempi_far_choice *choice)
{
    const uint32_t message = choice->messages++;
    if (choice->samples[0] < TEMPI_COPY_TRIALS || choice->samples[1] < TEMPI_COPY_TRIALS)
        return message % 2 == 1;
    const bool faster = choice->cost[1] < choice->cost[0];
    return faster != (message % AGAIN == 0);
}

void tempi_far_learn(tempi_far_choice *choice, bool far, double seconds, int64_t bytes)
{
    tempi_copy_sample(&choice->cost[far], ++choice->samples[far], seconds / (double)bytes);
}
