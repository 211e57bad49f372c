/* A Send_init or Recv_init that fails, with an error handler that returns: the program's request stays as it was,
 * whatever the call returns, and so does what hangs on a live request of that handle. */
#include <stdio.h>
#include <string.h>

#include <mpi.h>

enum { RUNS = 64, GAP = 3, TIMES = 3, WRONG_RANK = 1 << 20 };

int main(int argc, char **argv)
{
    MPI_Datatype type;
    int out[RUNS * GAP], in[RUNS * GAP];
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Type_vector(RUNS, 1, GAP, MPI_INT, &type);
    MPI_Type_commit(&type);
    for (int how = 0; how < 2; how++) {
        MPI_Request receive, other;
        int whole = 0;
        MPI_Recv_init(in, 1, type, 0, 1, MPI_COMM_SELF, &receive);
        other = receive; /* what happens to stand in the variable */
        if (how == 0)
            MPI_Recv_init(out, 1, type, WRONG_RANK, 1, MPI_COMM_WORLD, &other);
        else
            MPI_Send_init(out, 1, type, WRONG_RANK, 1, MPI_COMM_WORLD, &other);
        const int kept = other == receive;
        for (int i = 0; i < TIMES; i++) {
            for (int k = 0; k < RUNS * GAP; k++)
                out[k] = 1000 * i + k;
            memset(in, -1, sizeof in);
            MPI_Start(&receive);
            MPI_Send(out, 1, type, 0, 1, MPI_COMM_SELF);
            MPI_Wait(&receive, MPI_STATUS_IGNORE);
            int good = 1;
            for (int k = 0; k < RUNS; k++)
                good &= in[k * GAP] == 1000 * i + k * GAP;
            whole += good;
        }
        printf("%s: the request is %s, %d of %d receives are whole\n", how ? "Send_init" : "Recv_init",
               kept ? "as it was" : "another", whole, TIMES);
        MPI_Request_free(&receive);
    }
    MPI_Type_free(&type);
    MPI_Finalize();
    return 0;
}
