/* A typical profiling tool: wraps MPI_Send, counts, calls PMPI_Send. */
#include <mpi.h>
#include <stdio.h>

static int sends;

int MPI_Send(const void *buf, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm)
{
    sends++;
    return PMPI_Send(buf, count, type, to, tag, comm);
}

int MPI_Finalize(void)
{
    printf("tool sends=%d\n", sends);
    return PMPI_Finalize();
}
