/* A strided message between two ranks. */
#include <stdio.h>

#include <mpi.h>

int main(int argc, char **argv)
{
    int rank, good = 1, memory[8] = {0};
    MPI_Datatype type;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Type_vector(4, 1, 2, MPI_INT, &type);
    MPI_Type_commit(&type);
    for (int i = 0; i < 8 && rank == 0; i++)
        memory[i] = i;
    if (rank == 0)
        MPI_Send(memory, 1, type, 1, 0, MPI_COMM_WORLD);
    else
        MPI_Recv(memory, 1, type, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < 8; i += 2)
        good &= memory[i] == i;
    printf("%s %d\n", good ? "ok" : "wrong", rank);
    MPI_Type_free(&type);
    MPI_Finalize();
    return 0;
}
