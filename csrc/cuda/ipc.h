/* cuda/ipc.h: device memory of other processes of the node, by CUDA IPC (CUDA driver API,
 * cuIpcGetMemHandle and cuIpcOpenMemHandle).
 *
 * Handles of this process's allocations are cached by buffer id, which the driver never reuses.
 * What was opened of others stays open until another allocation is at its addresses, or the bytes
 * are needed for one. Only memory of cuMemAlloc has a handle, not that of pools or virtual
 * mappings. */
#ifndef TEMPI_CUDA_IPC_H
#define TEMPI_CUDA_IPC_H

#include "cuda/driver.h"

#include <stdbool.h>

/* An allocation, as others open it. By value: it is passed through shared memory. */
typedef struct tempi_ipc_memory {
    tempi_ipc_handle handle;
    uint64_t base; /* its address in the process that owns it */
    int64_t bytes;
    uint64_t buffer_id;
    int64_t process;
} tempi_ipc_memory;

/* False: it has no handle. `slot`: context slot of its device. */
bool tempi_ipc_export(int slot, uint64_t base, int64_t bytes, uint64_t buffer_id,
                      tempi_ipc_memory *out);
/* Its first byte for kernels of that context slot, valid until the matching close of *pin. False:
 * this process cannot open it. */
bool tempi_ipc_open(int slot, const tempi_ipc_memory *memory, uint64_t *address, int *pin);
void tempi_ipc_close(int pin);

/* Forgets what was opened in that context slot, whose context is gone. */
void tempi_ipc_forget(int slot);
/* Closes all that was opened, and forgets the handles. */
void tempi_ipc_stop(void);

#endif
