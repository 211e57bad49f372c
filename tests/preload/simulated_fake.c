/* The symbols by which tempi recognizes SimGrid's MPI (-DLIBRARY), and a program that calls it. */
#include <stdio.h>

int MPI_Init(int *argc, char ***argv);

#ifdef LIBRARY
int PMPI_Init(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    puts("Init by the library");
    return 0;
}

int MPI_Init(int *argc, char ***argv)
{
    return PMPI_Init(argc, argv);
}

void SMPI_app_instance_register(void)
{
}
#else
int main(int argc, char **argv)
{
    return MPI_Init(&argc, &argv);
}
#endif
