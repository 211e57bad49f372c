/* Blocks within this process, from layout to layout, without packing all of it in between. */
#ifndef TEMPI_EXCHANGE_LOCAL_COPY_H
#define TEMPI_EXCHANGE_LOCAL_COPY_H

#include "exchange/copy_choice.h"
#include "pack/pack.h"

#include <stdbool.h>

/* Whole operations of the host, or contiguous bytes (block_bytes.h). False: one was too long for
 * its place and was cut. */
bool tempi_local_copy(const tempi_op *from, const tempi_op *to, int64_t n);
/* The same for blocks of a call whose blocks do not fit into the caches: with ordinary or with
 * non-temporal stores, whichever is found to be faster (copy_choice.h). */
bool tempi_local_copy_large(tempi_copy_choice *choice, const tempi_op *from, const tempi_op *to,
                            int64_t n);
/* About how many bytes of memory the lines of these blocks have. */
int64_t tempi_local_lines(const tempi_op *blocks, int64_t n);

#endif
