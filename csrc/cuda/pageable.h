/* cuda/pageable.h: packed bytes in pageable memory, which no kernel reaches and which the driver
 * copies only while it blocks. They go piece by piece through pinned memory (pageable.c). */
#ifndef TEMPI_CUDA_PAGEABLE_H
#define TEMPI_CUDA_PAGEABLE_H

#include "cuda/batch.h"

/* Whether the operation is worth it. */
bool tempi_cuda_is_pageable(const tempi_op *op);
/* Takes the item's pinned memory; false: there is none. */
bool tempi_cuda_pageable_prepare(tempi_cuda_item *item);

/* Enqueues the first pieces, or begins anew after a failure. The caller has entered the device. */
int tempi_cuda_pageable_start(tempi_cuda_batch *batch);
/* Finishes the pieces that the device is done with and enqueues the next ones. Never blocks; *done:
 * all are finished. The caller owns the batch. */
int tempi_cuda_pageable_advance(tempi_cuda_batch *batch, bool *done);
/* Waits for the next piece, for a while. The caller owns the batch. */
void tempi_cuda_pageable_await(tempi_cuda_batch *batch);
/* With nothing in flight. */
void tempi_cuda_pageable_end(tempi_cuda_batch *batch);

#endif
