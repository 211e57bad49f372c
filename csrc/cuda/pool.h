/* cuda/pool.h: device buffers, and pinned host buffers that device and CPU reach at the same
 * address. Pooled in size classes, since each driver allocation takes tens of microseconds or more.
 * Pinned buffers in use count against TEMPI_STAGE_MAX together with pageable staging memory, device
 * buffers against TEMPI_DEVICE_MAX. NULL if the bound is reached or memory is out, even after
 * cached buffers were freed. */
#ifndef TEMPI_CUDA_POOL_H
#define TEMPI_CUDA_POOL_H

#include <stdbool.h>
#include <stdint.h>

/* At least `bytes` bytes, aligned to 256. Pinned memory serves every device; it is allocated
 * through the primary context of the slot's device: a context of the program would free it when
 * destroyed, while MPI may still be writing it. */
void *tempi_cuda_pinned_get(int slot, int64_t bytes);
void *tempi_cuda_buffer_get(int slot, int64_t bytes);
/* Pinned memory for the work on a message that is carried already: if it would exceed the bound it
 * is not counted. */
void *tempi_cuda_pinned_some(int slot, int64_t bytes);
/* Returns a buffer of either kind, on any thread. The device must be done with it. False, with no
 * effect, if the address is not the start of a buffer of these pools in use. */
bool tempi_cuda_pool_put(void *buffer);
/* Whether the address is the start of a pinned buffer of the pool in use. */
bool tempi_cuda_pool_pinned(const void *buffer);
/* Frees cached buffers. */
void tempi_cuda_pool_trim(void);
/* Forgets the buffers of a slot whose context is gone: those in use are dropped when they are
 * put. */
void tempi_cuda_pool_forget(int slot);
/* Frees all buffers, those in use included: before the contexts go. */
void tempi_cuda_pool_clear(void);
/* Bytes in buffers in use and in cached ones, both kinds: for tests. */
int64_t tempi_cuda_pool_used(void);
int64_t tempi_cuda_pool_cached(void);

#endif
