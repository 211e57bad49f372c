/* One short message of a derived datatype, to the other rank and back again, many times; then as
 * often one of each with a request. */
#include <stdio.h>
#include <string.h>

#include <mpi.h>

enum { TIMES = 100, RUNS = 16 };

int main(int argc, char **argv)
{
    double out[3 * RUNS], in[3 * RUNS];
    int rank, wrong = 0;
    MPI_Datatype type;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Type_vector(RUNS, 1, 3, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    for (int turn = 0; turn < 2 * TIMES; turn++) {
        MPI_Request requests[2];
        for (int i = 0; i < 3 * RUNS; i++)
            out[i] = 1000 * turn + i;
        memset(in, 0, sizeof in);
        if (turn >= TIMES) {
            MPI_Irecv(in, 1, type, 1 - rank, 5, MPI_COMM_WORLD, &requests[0]);
            MPI_Isend(out, 1, type, 1 - rank, 5, MPI_COMM_WORLD, &requests[1]);
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        } else {
            if (rank == 0)
                MPI_Send(out, 1, type, 1, 5, MPI_COMM_WORLD);
            MPI_Recv(in, 1, type, 1 - rank, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (rank == 1)
                MPI_Send(out, 1, type, 0, 5, MPI_COMM_WORLD);
        }
        for (int i = 0; i < 3 * RUNS; i++)
            wrong += in[i] != (i % 3 == 0 ? out[i] : 0);
    }
    if (rank == 0)
        puts(wrong ? "wrong" : "ok repeats");
    MPI_Type_free(&type);
    MPI_Finalize();
    return 0;
}
