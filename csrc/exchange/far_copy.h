/* A block of this process from or into a nest of another one, through the kernel. */
#ifndef TEMPI_EXCHANGE_FAR_COPY_H
#define TEMPI_EXCHANGE_FAR_COPY_H

#include "exchange/single_copy.h"

/* Reads the next bytes of that process's nest, as many as the block has, into the block. False: not
 * all of them could be read; some may have been stored. */
bool tempi_far_read(pid_t process, tempi_nest_walk *from, const tempi_op *block);
/* Likewise writes the block into the nest of that process, which must be known to be reached. */
bool tempi_far_write(pid_t process, tempi_nest_walk *to, const tempi_op *block);
/* Likewise where the process has told that made the offer `there`, if it can be reached. */
bool tempi_far_store(const tempi_probe *there, const tempi_nest_shape *place,
                     const tempi_op *block);

#endif
