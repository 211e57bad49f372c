/* cuda/completion.h: how the host detects that a stream has reached a point: it polls a word of
 * pinned memory. The last block of a kernel writes it if the kernel is the last work
 * (tempi/kernels/_done.py), which takes no driver call. Else the stream writes it (CUDA driver API,
 * cuStreamWriteValue32: the write is preceded by a system-wide memory fence), in one; an event
 * takes one to record it and one for each query. */
#ifndef TEMPI_CUDA_COMPLETION_H
#define TEMPI_CUDA_COMPLETION_H

#include "cuda/device.h"

enum { TEMPI_CUDA_NO_FLAG = -1 };

/* A flag for a kernel to write, and the addresses to pass to it; TEMPI_CUDA_NO_FLAG: none is free.
 * The caller has entered the device. */
int tempi_cuda_flag_for_kernel(tempi_cuda_device *device, uint64_t *word, uint64_t *counter);

/* Enqueues the write of a flag; TEMPI_CUDA_NO_FLAG: none is free, or the driver cannot: use an
 * event. The caller has entered the device. */
int tempi_cuda_flag_raise(tempi_cuda_device *device, tempi_cuda_stream stream);
/* The stream must be done with it. */
void tempi_cuda_flag_put(tempi_cuda_device *device, int flag);

static inline bool tempi_cuda_flag_is_up(const tempi_cuda_device *device, int flag)
{
    return __atomic_load_n(&device->flags.words[flag], __ATOMIC_ACQUIRE) != 0;
}

/* Polls for some tens of microseconds, as long as most packs take. */
void tempi_cuda_flag_spin(const tempi_cuda_device *device, int flag);

/* Returns the memory to the driver; the caller has entered the device. */
void tempi_cuda_flags_free(tempi_cuda_device *device);
/* The same where the driver has dropped it already. */
void tempi_cuda_flags_drop(tempi_cuda_device *device);

#endif
