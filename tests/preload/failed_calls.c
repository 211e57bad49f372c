/* A call that fails, with a program's error handler that returns: request, status and buffer do not
 * change, whatever the call returns, nor does the record of a live request with that handle. */
#include <stdio.h>
#include <string.h>

#include <mpi.h>

static void pass(MPI_Comm *comm, int *code, ...)
{
    (void)comm, (void)code;
}

static int filled(const int *memory, int n)
{
    int good = 1;
    for (int i = 0; i < n; i++)
        good &= memory[i] == -1;
    return good;
}

enum { RUNS = 64, GAP = 3, TIMES = 3, WRONG_RANK = 1 << 20 };

int main(int argc, char **argv)
{
    static const char *const names[] = {
        "Recv_init", "Send_init", "Ssend_init", "Bsend_init", "Rsend_init",          "Irecv",
        "Isend",     "Issend",    "Irsend",     "Recv",       "Recv, status ignored"};
    enum { NAMES = sizeof names / sizeof *names };
    MPI_Datatype type;
    int out[RUNS * GAP], in[RUNS * GAP];
    MPI_Init(&argc, &argv);
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(pass, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
    MPI_Type_vector(RUNS, 1, GAP, MPI_INT, &type);
    MPI_Type_commit(&type);
    for (int how = 0; how < NAMES; how++) {
        MPI_Request receive, other;
        MPI_Status status;
        int whole = 0;
        memset(out, -1, sizeof out);
        status.MPI_SOURCE = 77;
        MPI_Recv_init(in, 1, type, 0, 1, MPI_COMM_SELF, &receive);
        other = receive; /* a stale value in the variable */
        switch (how) {
        case 0: MPI_Recv_init(out, 1, type, WRONG_RANK, 1, MPI_COMM_WORLD, &other); break;
        case 1: MPI_Send_init(out, 1, type, WRONG_RANK, 1, MPI_COMM_WORLD, &other); break;
        case 2: MPI_Ssend_init(out, 1, type, WRONG_RANK, 1, MPI_COMM_WORLD, &other); break;
        case 3: MPI_Bsend_init(out, 1, type, WRONG_RANK, 1, MPI_COMM_WORLD, &other); break;
        case 4: MPI_Rsend_init(out, 1, type, WRONG_RANK, 1, MPI_COMM_WORLD, &other); break;
        case 5: MPI_Irecv(out, 1, type, WRONG_RANK, 1, MPI_COMM_WORLD, &other); break;
        case 6: MPI_Isend(out, 1, type, WRONG_RANK, 1, MPI_COMM_WORLD, &other); break;
        case 7: MPI_Issend(out, 1, type, WRONG_RANK, 1, MPI_COMM_WORLD, &other); break;
        case 8: MPI_Irsend(out, 1, type, WRONG_RANK, 1, MPI_COMM_WORLD, &other); break;
        case 9: MPI_Recv(out, 1, type, WRONG_RANK, 1, MPI_COMM_WORLD, &status); break;
        default: MPI_Recv(out, 1, type, WRONG_RANK, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        const int kept = other == receive && status.MPI_SOURCE == 77 && filled(out, RUNS * GAP);
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
        printf("%s: all is %s, %d of %d receives are whole\n", names[how],
               kept ? "as it was" : "changed", whole, TIMES);
        MPI_Request_free(&receive);
    }
    MPI_Type_free(&type);
    MPI_Finalize();
    return 0;
}
