/* The methods for device memory, in the order of their numbers (tempi_method):
 *
 *     X(extra, number, name as in TEMPI_METHOD, how messages, packs and unpacks are done)
 *
 * The names, the counters and the help of TEMPI_METHOD come from here. */
#ifndef TEMPI_BASE_DEVICE_METHODS_H
#define TEMPI_BASE_DEVICE_METHODS_H

#include <stdbool.h>
#include <stdint.h>

#include "tempi.h"

#define TEMPI_DEVICE_METHODS(X, extra)                                                         \
    X(extra, DEVICE, device, "kernels pack into a device buffer; needs a CUDA-aware library")  \
    X(extra, ONE_SHOT, oneshot, "kernels pack into pinned host memory")                        \
    X(extra, STAGED, staged, "kernels pack into a device buffer, which is copied to the host") \
    X(extra, PIPELINED, pipelined, "the same in pieces, so that packing and copying overlap")

/* Of these, DEVICE alone needs a CUDA-aware library. */
static inline bool tempi_method_is_device(int32_t method)
{
    return method > TEMPI_METHOD_HOST && method < TEMPI_METHOD_LIBRARY;
}

static inline bool tempi_method_through_host(int32_t method)
{
    return method > TEMPI_METHOD_DEVICE && method < TEMPI_METHOD_LIBRARY;
}

#endif
