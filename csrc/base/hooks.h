/* Functions that the ABI-neutral engine calls in the loaded shim of one MPI ABI. */
#ifndef TEMPI_BASE_HOOKS_H
#define TEMPI_BASE_HOOKS_H

#include "tempi.h"

typedef struct tempi_hooks {
    int (*comm_set_stream)(uintptr_t comm, uintptr_t stream);
    int (*comm_peer)(uintptr_t comm, int rank, int *out);
    int (*comm_probe)(uintptr_t comm, int rank);
    /* While more is pending than nothing, calls that may end a burst flush it. */
    void (*pending_add)(int64_t amount);
    int (*datatype_layout)(uintptr_t datatype, const tempi_layout **out);
    int (*library_cuda_aware)(void); /* tempi_engine_info.cuda_aware */
} tempi_hooks;

/* All NULL until the shim is loaded. */
extern tempi_hooks tempi_shim_hooks;

#endif
