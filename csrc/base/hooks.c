#include "base/hooks.h"

#include <stddef.h>

tempi_hooks tempi_shim_hooks;

int tempi_comm_set_stream(uintptr_t comm, uintptr_t stream)
{
    if (!tempi_shim_hooks.comm_set_stream)
        return TEMPI_ERR_NO_MPI;
    return tempi_shim_hooks.comm_set_stream(comm, stream);
}

int tempi_comm_probe_locality(uintptr_t comm, int rank)
{
    if (!tempi_shim_hooks.comm_probe)
        return TEMPI_ERR_NO_MPI;
    return tempi_shim_hooks.comm_probe(comm, rank);
}

int tempi_comm_peer(uintptr_t comm, int rank, int *out)
{
    if (!tempi_shim_hooks.comm_peer)
        return TEMPI_ERR_NO_MPI;
    return tempi_shim_hooks.comm_peer(comm, rank, out);
}

int tempi_datatype_layout(uintptr_t datatype, const tempi_layout **out)
{
    if (!tempi_shim_hooks.datatype_layout)
        return TEMPI_ERR_NO_MPI;
    return tempi_shim_hooks.datatype_layout(datatype, out);
}
