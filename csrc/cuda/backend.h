/* cuda/backend.h: the device back end of pack/pack.h. Operations whose method is not
 * TEMPI_METHOD_HOST come here through tempi_pack_submit once tempi_cuda_backend_start was called.
 *
 * Work is gathered: tempi_cuda_flush launches all of it, in one launch a device and direction, and
 * a ticket's wait what the ticket needs; a test launches nothing. So who tests tickets flushes
 * first, at any call that could be the end of a burst. A burst is then one launch; the price is
 * that a program which posts a send and computes on without a call of MPI has its pack started only
 * by the next one. With TEMPI_LAUNCH_AT_ONCE work is launched when its device's stream is idle, by
 * submit or a test, and joins what waits else: a lone send starts at once, a burst takes two
 * launches or more.
 *
 * Before its launch an operation waits, on the device, for what the program had put into its stream
 * when the operation was submitted (device.h: tempi_cuda_order).
 */
#ifndef TEMPI_CUDA_BACKEND_H
#define TEMPI_CUDA_BACKEND_H

#include "cuda/device.h"
#include "pack/pack.h"

extern const tempi_backend tempi_cuda_backend;

/* Operations submitted and not launched yet, in all devices. */
extern _Atomic int tempi_cuda_waiting;
void tempi_cuda_flush_waiting(void);

/* Launches all that waits. At any call that is not an Isend or Irecv. */
static inline void tempi_cuda_flush(void)
{
    if (atomic_load_explicit(&tempi_cuda_waiting, memory_order_relaxed))
        tempi_cuda_flush_waiting();
}

/* What is gathered for a device whose context is gone, or was launched in it, ends in an error. */
void tempi_cuda_backend_forget(tempi_cuda_device *device);
/* Once, when the engine starts. */
void tempi_cuda_backend_start(void);
/* At MPI_Finalize, nothing in flight: buffers, tables, streams and contexts go back. Later use sets
 * everything up again. */
void tempi_cuda_stop(void);

#endif
