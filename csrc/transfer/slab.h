/* Staging buffers cut from huge pages.
 *
 * Between two processes of one node a library lets the kernel copy a long message straight from one
 * to the other, and the kernel looks up and pins every page of both sides: with small pages that
 * costs more than the copy (measured on a 2-core AMD EPYC, 1 MiB, pack, send and receive: 137 us
 * with pages of 4 KiB, 75 with pages of 2 MiB). Network cards that map their buffers page by page
 * gain likewise.
 */
#ifndef TEMPI_TRANSFER_SLAB_H
#define TEMPI_TRANSFER_SLAB_H

#include <stdint.h>

typedef struct tempi_slab tempi_slab;

enum {
    TEMPI_SLAB_LEAST = 8
        << 10, /* shorter messages are copied by the library itself: nothing to gain */
    TEMPI_SLAB_MOST = 2 << 20 /* longer ones have huge pages of their own */
};

/* A piece of `bytes`, 64-byte aligned, and the slab that it is of; NULL: out of memory. The caller
 * keeps other threads out of both functions. */
void *tempi_slab_cut(int64_t bytes, tempi_slab **slab);
/* One piece is done with for good; the last one takes the slab with it. */
void tempi_slab_release(tempi_slab *slab);

#endif
