/* A program that sends itself one strided message by each kind of call, and checks what arrives.
 * Prints "ok sends=N" where N is the number of MPI_Send calls it made. With -DPROFILED it is linked
 * with interposer_tool.c. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 7, WIDTH = 5, SENDS = 3 };

static int check(const int *got, const char *what)
{
    for (int i = 0; i < ROWS; i++)
        if (got[i] != 100 + i * WIDTH) {
            printf("%s: element %d is %d\n", what, i, got[i]);
            return 1;
        }
    return 0;
}

int main(int argc, char **argv)
{
    int bad = 0, matrix[ROWS * WIDTH], got[ROWS], flag = 7, position = 0;
    char packed[ROWS * sizeof(int)];
    MPI_Request requests[2];
    MPI_Datatype column;
    MPI_Init(&argc, &argv);
    MPI_Initialized(&flag);
    bad += flag != 1;
    for (int i = 0; i < ROWS * WIDTH; i++)
        matrix[i] = 100 + i;
    MPI_Type_vector(ROWS, 1, WIDTH, MPI_INT, &column);
    MPI_Type_commit(&column);
    for (int i = 0; i < SENDS; i++) {
        memset(got, 0, sizeof got);
        MPI_Irecv(got, ROWS, MPI_INT, 0, i, MPI_COMM_SELF, &requests[0]);
        MPI_Send(matrix, 1, column, 0, i, MPI_COMM_SELF);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        bad += check(got, "MPI_Send");
    }
    memset(got, 0, sizeof got);
    MPI_Irecv(got, ROWS, MPI_INT, 0, 9, MPI_COMM_SELF, &requests[0]);
    PMPI_Isend(matrix, 1, column, 0, 9, MPI_COMM_SELF, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    bad += check(got, "PMPI_Isend");
    MPI_Pack(matrix, 1, column, packed, sizeof packed, &position, MPI_COMM_SELF);
    memcpy(got, packed, sizeof got);
    bad += position != (int)sizeof packed || check(got, "MPI_Pack");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Type_free(&column);
    MPI_Finalize();
    if (!bad)
        printf("ok sends=%d\n", SENDS);
    return bad;
}
