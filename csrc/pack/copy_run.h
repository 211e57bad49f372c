/* Contiguous bytes from place to place, by ordinary or non-temporal stores. */
#ifndef TEMPI_PACK_COPY_RUN_H
#define TEMPI_PACK_COPY_RUN_H

#include "base/copy_bytes.h"
#include "pack/pack.h"

static inline void tempi_copy_run(void *to, const void *from, int64_t n, bool nontemporal)
{
    if (nontemporal)
        tempi_copy_nontemporal(to, from, n);
    else
        tempi_copy_bytes(to, from, (size_t)n);
}

#endif
