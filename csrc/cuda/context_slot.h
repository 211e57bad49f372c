/* cuda/context_slot.h: maps the context of a memory to its slot (device.h). */
#ifndef TEMPI_CUDA_CONTEXT_SLOT_H
#define TEMPI_CUDA_CONTEXT_SLOT_H

#include "cuda/device.h"

enum { TEMPI_CUDA_NO_SLOT = -1 };

/* The slot of memory on that device allocated in `context`. NULL, for memory of no context (memory
 * pools and virtual-memory mappings): the slot of the thread's current context, if that is on the
 * device. TEMPI_CUDA_NO_SLOT: the context cannot be used. Takes locks of its own: must not be
 * called with a lock of this folder held. */
int tempi_cuda_context_slot_of(int ordinal, tempi_cuda_context context);
/* Drops all that tempi has in a context that the program has destroyed or reset: nothing is
 * returned to the driver, which did so itself. The slot's next user sets it up anew. */
void tempi_cuda_context_forget(tempi_cuda_device *device);

#endif
