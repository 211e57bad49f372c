/* cuda/resident.h: descriptor blocks that stay on the device. Programs repeat their bursts, so the
 * block of the next one is often the same: then nothing is sent.
 *
 * A block is uploaded in the stream of its first user and is valid for others once that one is
 * done. It is replaced only when no batch uses it. With it stay the operations that it was planned
 * for, and their launches: the same ones need no plan either. */
#ifndef TEMPI_CUDA_RESIDENT_H
#define TEMPI_CUDA_RESIDENT_H

#include "cuda/batch.h"

/* The device address of a block of these bytes, for a batch in `stream`; 0: there is none. */
uint64_t tempi_cuda_resident_find(tempi_cuda_device *device, int direction, const void *bytes,
                                  size_t n, tempi_cuda_stream stream, int *out);
/* A place for a new block and, on the host, its bytes in pinned memory that the batch must keep
 * until it is done; 0: no place or no memory. The caller has entered the device. */
uint64_t tempi_cuda_resident_add(tempi_cuda_device *device, int direction, const void *bytes,
                                 size_t n, tempi_cuda_stream stream, int *out);
/* Gives the batch the plan of these operations and its block, if they were planned before and have
 * not changed. */
bool tempi_cuda_resident_recall(tempi_cuda_batch *batch, const tempi_op *ops, int n);
/* Keeps the batch's plan, patched, with its block, as that of these operations. */
void tempi_cuda_resident_remember(const tempi_cuda_batch *batch, const tempi_op *ops, int n);
/* The batch that uses the block is done: with the block's bytes there, or failed. */
void tempi_cuda_resident_release(tempi_cuda_device *device, int direction, int which, bool good);
/* Frees the blocks that no batch uses, on all devices. */
void tempi_cuda_residents_trim(void);
/* Frees what the host holds of them; their device memory is the pool's. */
void tempi_cuda_resident_drop(tempi_cuda_device *device);

#endif
