/* Blocks that a sender offers instead of packing them: the receiver reads them from its memory,
 * from layout to layout. Through the kernel where the runs are long; where the memory is mapped in
 * both processes (mapped.h, xpmem.h), of any length. */
#ifndef TEMPI_EXCHANGE_OFFER_H
#define TEMPI_EXCHANGE_OFFER_H

#include "exchange/nest_walk.h"

#include <sys/types.h>

enum {
    TEMPI_OFFER_MOST = 32,             /* blocks, of the first 64 */
    TEMPI_OFFER_LEAST = 16 << 10,      /* bytes of a block */
    TEMPI_OFFER_MAPPED_LEAST = 4 << 10 /* of one in mapped memory */
};

typedef struct tempi_offer {
    int n;
    int64_t bytes, runs; /* in all of them */
    uint64_t blocks;     /* bit mask */
    bool mapped;         /* all of them */
    tempi_nest_shape shapes[TEMPI_OFFER_MOST];
} tempi_offer;

/* Whether a block may be offered if its memory is mapped; sets its shape then. */
bool tempi_offer_could_map(const tempi_op *block, tempi_nest_shape *shape);
/* Those of n blocks with which it may be faster, for a receiver with that access
 * (TEMPI_ACCESS_*). */
void tempi_offer_describe(const tempi_op *blocks, int64_t n, unsigned access, tempi_offer *out);

typedef enum tempi_offer_result {
    TEMPI_OFFER_WAS_READ,
    TEMPI_OFFER_NOT_MAPPED, /* it was read, but some mapped memory through the kernel */
    TEMPI_OFFER_UNLIKE,     /* the blocks of both sides have unequal sizes */
    TEMPI_OFFER_UNREADABLE, /* the system did not read all; some bytes may have been stored */
    TEMPI_OFFER_UNMAPPABLE  /* likewise, of mapped memory */
} tempi_offer_result;

/* Reads the blocks that process offers, of which shape.block is the index, into those of the same
 * index. `access`: how it may get at them. */
tempi_offer_result tempi_offer_read(pid_t process, unsigned access, const tempi_nest_shape *shapes,
                                    int nshapes, const tempi_op *blocks, int64_t n);
/* What is left of a receiver's access after that result. */
unsigned tempi_offer_access_after(tempi_offer_result result, unsigned access);
/* The same as tempi_offer_read, of the packed bytes of all blocks at that address. */
tempi_offer_result tempi_offer_read_packed(pid_t process, uint64_t address, int64_t bytes,
                                           const tempi_op *blocks, int64_t n);

#endif
