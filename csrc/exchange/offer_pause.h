/* After a refusal a sender offers nothing to that receiver's device for a while, twice as long
 * after each: the receiver's blocks may be in other memory in a later exchange. */
#ifndef TEMPI_EXCHANGE_OFFER_PAUSE_H
#define TEMPI_EXCHANGE_OFFER_PAUSE_H

#include <stdbool.h>
#include <stdint.h>

/* Zero at first. Of one sender for one receiver, in messages. */
typedef struct tempi_offer_pause {
    uint32_t length, left;
} tempi_offer_pause;

enum { TEMPI_OFFER_PAUSE_MOST = 16 };

/* Once for each message. */
static inline bool tempi_offer_is_paused(tempi_offer_pause *pause)
{
    const bool is = pause->left > 0;
    pause->left -= is;
    return is;
}

static inline void tempi_offer_was_refused(tempi_offer_pause *pause)
{
    const uint32_t twice = pause->length > 0 ? 2 * pause->length : 1;
    pause->left = pause->length = twice < TEMPI_OFFER_PAUSE_MOST ? twice : TEMPI_OFFER_PAUSE_MOST;
}

static inline void tempi_offer_was_accepted(tempi_offer_pause *pause)
{
    pause->left = pause->length = 0;
}

#endif
