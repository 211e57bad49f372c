/* Blocks within this process, from layout to layout, without packing all of it in between. */
#ifndef TEMPI_EXCHANGE_LOCAL_COPY_H
#define TEMPI_EXCHANGE_LOCAL_COPY_H

#include "pack/pack.h"

#include <stdbool.h>

/* Whole operations of the host, or contiguous bytes (block_bytes.h). False: one was too long for
 * its place and was cut. */
bool tempi_local_copy(const tempi_op *from, const tempi_op *to, int64_t n);

#endif
