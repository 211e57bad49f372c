/* cuda/pool.h: device buffers and pinned host buffers that device and CPU both reach at the same
 * address. Pooled in size classes, since the driver takes tens of microseconds and more for each;
 * pinned ones in use count against TEMPI_STAGE_MAX together with plain staging memory, device ones
 * against TEMPI_DEVICE_MAX. NULL when that or memory is out: after what is cached has been given
 * back. */
#ifndef TEMPI_CUDA_POOL_H
#define TEMPI_CUDA_POOL_H

#include <stdbool.h>
#include <stdint.h>

/* At least `bytes` bytes, aligned to 256. Pinned memory serves every device; it is taken through
 * the primary context of the one at that place: a context of the program's own would take it along
 * when it is destroyed, while MPI may still be writing it. */
void *tempi_cuda_pinned_get(int place, int64_t bytes);
void *tempi_cuda_buffer_get(int place, int64_t bytes);
/* Gives a buffer of either kind back, on any thread. The device must be done with it. False, and
 * nothing is done, when the address is not the beginning of a buffer in use of these pools. */
bool tempi_cuda_pool_put(void *buffer);
/* Whether the address is the beginning of a pinned buffer of ours that is in use. */
bool tempi_cuda_pool_pinned(const void *buffer);
/* Gives cached buffers back to the driver. */
void tempi_cuda_pool_trim(void);
/* The buffers at that place went with their context: those in use are forgotten when they are put.
 */
void tempi_cuda_pool_forget(int place);
/* Gives all buffers back, those in use included: before the contexts go. */
void tempi_cuda_pool_clear(void);
/* Bytes in buffers handed out and in cached ones, both kinds: for tests. */
int64_t tempi_cuda_pool_used(void);
int64_t tempi_cuda_pool_cached(void);

#endif
