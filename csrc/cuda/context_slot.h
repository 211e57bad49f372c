/* cuda/context_slot.h: where the memory of a context is worked on (device.h: places). */
#ifndef TEMPI_CUDA_PLACE_H
#define TEMPI_CUDA_PLACE_H

#include "cuda/driver.h"

enum { TEMPI_CUDA_NO_PLACE = -1 };

/* The place of memory on the device of that ordinal that was allocated in `context`. NULL, for what
 * belongs to no context (memory pools and virtual-memory mappings): that of the thread's current
 * context, if it is one of that device. TEMPI_CUDA_NO_PLACE: the context cannot be used. Takes no
 * lock of the caller's, and must not be called with one of this folder's held. */
int tempi_cuda_context_slot_of(int ordinal, tempi_cuda_context context);

#endif
