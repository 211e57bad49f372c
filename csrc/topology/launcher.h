/* What the launcher tells a rank about its job through the environment: known at once, without a
 * message to anybody. A variable counts only beside a rank and a size of the same launcher that are
 * those which MPI reports: a program that one rank of a job starts inherits the job's variables. */
#ifndef TEMPI_BASE_LAUNCHER_H
#define TEMPI_BASE_LAUNCHER_H

typedef struct tempi_job {
    int local;      /* ranks of the world on this node; 0: not known */
    char name[640]; /* the same on all ranks of the world on this node and on no other; "": not
                       known */
} tempi_job;

void tempi_launcher_ask(int rank, int size, tempi_job *out);

#endif
