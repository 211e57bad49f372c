#include "exchange/store_choice.h"
#include "exchange/copy_choice.h"

enum { AGAIN = 32 /* messages after which the other one is tried again */ };

bool tempi_store_choose(tempi_store_choice *choice)
{
    const uint32_t message = choice->messages++;
    if (choice->samples[0] < TEMPI_COPY_TRIALS || choice->samples[1] < TEMPI_COPY_TRIALS)
        return message % 2 == 1;
    const bool faster = choice->cost[1] < choice->cost[0];
    return faster != (message % AGAIN == 0);
}

void tempi_store_measured(tempi_store_choice *choice, bool nontemporal, double seconds,
                          int64_t bytes)
{
    tempi_copy_sample(&choice->cost[nontemporal], ++choice->samples[nontemporal],
                      seconds / (double)bytes);
}
