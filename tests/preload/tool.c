/* A typical profiling tool for requests: wraps posting and completing calls, calls PMPI. */
#include <mpi.h>
#include <stdio.h>

static int posted, completed;

int MPI_Isend(const void *buf, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    posted++;
    return PMPI_Isend(buf, count, type, to, tag, comm, request);
}

int MPI_Irecv(void *buf, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    posted++;
    return PMPI_Irecv(buf, count, type, from, tag, comm, request);
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    completed++;
    return PMPI_Wait(request, status);
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[])
{
    completed += count;
    return PMPI_Waitall(count, requests, statuses);
}

int MPI_Finalize(void)
{
    int rank;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        printf("tool posted=%d completed=%d\n", posted, completed);
    return PMPI_Finalize();
}
