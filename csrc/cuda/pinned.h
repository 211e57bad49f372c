/* cuda/pinned.h: host memory that every device reaches at the host's address. It is tempi's own,
 * registered with the driver: memory that the driver allocates vanishes with its context, also
 * when the program resets the device (CUDA driver API, cuDevicePrimaryCtxReset), while the MPI
 * library may still read it. Where the device's addresses of registered memory differ from the
 * host's, the driver allocates it. */
#ifndef TEMPI_CUDA_PINNED_H
#define TEMPI_CUDA_PINNED_H

#include "cuda/device.h"

/* Page-aligned; *registered: which of the two it is. TEMPI_ERR_MEMORY: out of memory. */
int tempi_cuda_pinned_new(tempi_cuda_device *device, int64_t bytes, void **out, bool *registered);
/* Returns it to driver and system; if the context is gone, what the driver has not freed. */
void tempi_cuda_pinned_free(tempi_cuda_device *device, void *address, int64_t bytes,
                            bool registered);
void tempi_cuda_pinned_drop(void *address, int64_t bytes, bool registered);

#endif
