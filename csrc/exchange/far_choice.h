/* With ordinary or with non-temporal stores (block_bytes.h)? Which one is faster depends on the
 * caches that two cores share, and on where the system runs the processes; so both are tried on the
 * program's own messages, now and then again. */
#ifndef TEMPI_EXCHANGE_FAR_CHOICE_H
#define TEMPI_EXCHANGE_FAR_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

enum { TEMPI_FAR_LEAST = 32 << 10 /* bytes of a message; shorter ones stay in the caches */ };

/* Zero at first. Of one sender for one receiver; [0]: ordinary stores. */
typedef struct tempi_far_choice {
    double cost[2]; /* seconds per byte, of both processes */
    uint32_t samples[2];
    uint32_t messages;
} tempi_far_choice;

bool tempi_far_choose(tempi_far_choice *choice);
void tempi_far_learn(tempi_far_choice *choice, bool far, double seconds, int64_t bytes);

#endif
