/* cuda/backend.h: the device back end of pack/pack.h. Operations whose method is not TEMPI_ON_HOST come
 * here through tempi_pack_submit once tempi_cuda_backend_start was called.
 *
 * Work is gathered: it is launched at once when its device's stream is idle, else it joins what waits
 * for the stream; tempi_cuda_flush launches all that waits, in one launch a device and direction. A
 * ticket's wait flushes what the ticket needs, a test launches it when the stream has become idle.
 *
 * Before its launch an operation waits, on the device, for what the program had put into its stream
 * when the operation was submitted (device.h: tempi_cuda_order).
 */
#ifndef TEMPI_CUDA_BACKEND_H
#define TEMPI_CUDA_BACKEND_H

#include "cuda/driver.h"
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

/* Once, when the engine starts. */
void tempi_cuda_backend_start(void);
/* At MPI_Finalize, nothing in flight: buffers, tables, streams and contexts go back. Later use sets
 * everything up again. */
void tempi_cuda_stop(void);

#endif
