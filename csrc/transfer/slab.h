/* Staging buffers cut from huge pages.
 *
 * Between two processes of a node a library lets the kernel copy a long message directly, and the
 * kernel looks up and pins every page of both sides: with small pages that costs more than the copy
 * (measured on a 2-core AMD EPYC, 1 MiB, pack, send and receive: 137 us with pages of 4 KiB, 75
 * with pages of 2 MiB). Network cards that map buffers page by page benefit likewise. */
#ifndef TEMPI_TRANSFER_SLAB_H
#define TEMPI_TRANSFER_SLAB_H

#include <stdint.h>

typedef struct tempi_slab tempi_slab;

enum {
    /* The library itself copies shorter messages: nothing to gain. */
    TEMPI_SLAB_LEAST = 8 << 10,
    TEMPI_SLAB_MOST = 2 << 20 /* longer buffers have huge pages of their own */
};

/* Cuts a 64-byte aligned piece of `bytes` and returns its slab; NULL: out of memory. The caller
 * serializes calls of both functions. */
void *tempi_slab_cut(int64_t bytes, tempi_slab **slab);
/* Releases one piece for good; the last one frees the slab. */
void tempi_slab_release(tempi_slab *slab);

#endif
