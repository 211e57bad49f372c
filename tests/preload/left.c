/* Broadcasts of a derived datatype, and of a predefined one. */
#include <stdio.h>

#include <mpi.h>

enum { TIMES = 3, RUNS = 8 };

int main(int argc, char **argv)
{
    double memory[3 * RUNS] = {0};
    MPI_Datatype type;
    MPI_Init(&argc, &argv);
    MPI_Type_vector(RUNS, 1, 3, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    for (int i = 0; i < TIMES; i++) {
        MPI_Bcast(memory, 1, type, 0, MPI_COMM_WORLD);
        MPI_Bcast(memory, RUNS, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    }
    MPI_Type_free(&type);
    MPI_Finalize();
    return 0;
}
