/* Blocks with long runs that a sender offers instead of packing them: the receiver reads them from
 * its memory, from layout to layout. */
#ifndef TEMPI_EXCHANGE_OFFER_H
#define TEMPI_EXCHANGE_OFFER_H

#include "exchange/nest_walk.h"

#include <sys/types.h>

enum { TEMPI_OFFER_MOST = 32 /* blocks, of the first 64 */ };

typedef struct tempi_offer {
    int n;
    int64_t bytes, runs; /* in all of them */
    uint64_t blocks;     /* bit mask */
    tempi_nest_shape shapes[TEMPI_OFFER_MOST];
} tempi_offer;

/* Those of n blocks with which it may be faster. */
void tempi_offer_describe(const tempi_op *blocks, int64_t n, tempi_offer *out);

typedef enum tempi_offer_result {
    TEMPI_OFFER_WAS_READ,
    TEMPI_OFFER_UNLIKE,    /* the blocks of both sides have unequal sizes */
    TEMPI_OFFER_UNREADABLE /* the system did not read all; some bytes may have been stored */
} tempi_offer_result;

/* Reads the blocks that process offers, of which shape.block is the index, into those of the same
 * index. */
tempi_offer_result tempi_offer_read(pid_t process, const tempi_nest_shape *shapes, int nshapes,
                                    const tempi_op *blocks, int64_t n);
/* The same of the packed bytes of all blocks at that address. */
tempi_offer_result tempi_offer_read_packed(pid_t process, uint64_t address, int64_t bytes,
                                           const tempi_op *blocks, int64_t n);

#endif
