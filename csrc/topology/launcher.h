/* The launcher's data on a rank's job in the environment: available at once, without communication.
 * A variable counts only if the same launcher also gives the rank and size that MPI reports: a
 * program started by one rank of a job inherits the job's variables. */
#ifndef TEMPI_TOPOLOGY_LAUNCHER_H
#define TEMPI_TOPOLOGY_LAUNCHER_H

#include <stdbool.h>

typedef struct tempi_job {
    int local; /* ranks of the world on this node; 0: unknown */
    /* The same on all ranks of the world on this node and nowhere else; "": unknown. */
    char name[640];
} tempi_job;

/* Before MPI_Init: rank and size by the launcher's variables, size 0 if it is unknown. False: there
 * are none. */
bool tempi_launcher_guess(int *rank, int *size);
void tempi_launcher_ask(int rank, int size, tempi_job *out);

#endif
