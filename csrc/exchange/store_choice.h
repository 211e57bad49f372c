/* Chooses ordinary or non-temporal stores (block_bytes.h) by timing both. Which one is faster
 * depends on the caches that two cores share, and on where the system runs the processes; so both
 * are timed on the program's own messages, and the slower one again at times. */
#ifndef TEMPI_EXCHANGE_STORE_CHOICE_H
#define TEMPI_EXCHANGE_STORE_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

enum { TEMPI_STORE_LEAST = 32 << 10 /* bytes of a message; shorter ones stay in the caches */ };

/* Zero at first. Of one sender for one receiver; [0]: ordinary stores. */
typedef struct tempi_store_choice {
    double cost[2]; /* seconds per byte, of both processes */
    uint32_t samples[2];
    uint32_t messages;
} tempi_store_choice;

bool tempi_store_choose(tempi_store_choice *choice);
void tempi_store_measured(tempi_store_choice *choice, bool nontemporal, double seconds,
                          int64_t bytes);

#endif
