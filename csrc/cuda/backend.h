/* cuda/backend.h: the device back end of pack/pack.h. After tempi_cuda_backend_start,
 * tempi_pack_submit passes all operations here whose method is not TEMPI_METHOD_HOST.
 *
 * Operations are batched: tempi_cuda_flush launches all of them, in one launch per device and
 * direction; waiting for a ticket launches its batch; testing launches nothing. So a caller that
 * tests tickets flushes first, at any call that could be the end of a burst. A burst is then one
 * launch. It starts when it is as long as the last two were, if those were equally long, and else
 * with the flush: a program that posts a send and computes on without an MPI call has its pack
 * started only by the next one, until it has repeated itself. With TEMPI_LAUNCH_AT_ONCE, submit and
 * test also launch if the device's stream is idle: a single send starts at once, a burst takes two
 * launches or more.
 *
 * An operation comes after the work that the program's stream holds when it is submitted, or, for
 * the stream of a communicator and for the default stream, launched (stream_order.c). */
#ifndef TEMPI_CUDA_BACKEND_H
#define TEMPI_CUDA_BACKEND_H

#include "cuda/device.h"
#include "pack/pack.h"

extern const tempi_backend tempi_cuda_backend;

/* Operations submitted but not launched yet, on all devices. */
extern _Atomic int tempi_cuda_waiting;
/* Whether a burst has begun and not ended. */
extern _Atomic bool tempi_cuda_bursting;
void tempi_cuda_flush_waiting(void);

/* Launches all pending operations. Called by every MPI call but Isend and Irecv. */
static inline void tempi_cuda_flush(void)
{
    if (atomic_load_explicit(&tempi_cuda_bursting, memory_order_relaxed))
        tempi_cuda_flush_waiting();
}

/* Ends all batches of a device whose context is gone, open or launched, with an error. */
void tempi_cuda_backend_forget(tempi_cuda_device *device);
/* Once, when the engine starts. */
void tempi_cuda_backend_start(void);
/* Sets up the device whose context is current, if there is one, and loads its kernels: loading may
 * wait for running kernels, which may wait for messages. Other devices: at their first message. */
void tempi_cuda_backend_prepare(void);
/* At MPI_Finalize, with nothing in flight: frees buffers, tables, streams and contexts. Later use
 * sets everything up again. */
void tempi_cuda_stop(void);

#endif
