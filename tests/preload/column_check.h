/* Shared by the programs of these tests: a strided type, its memory, and a verdict.
 *
 * Pairs of ranks (0 with 1, 2 with 3) exchange columns of a matrix. Every rank prints only errors;
 * rank 0 prints "ok NAME" for each step that was right on all ranks. */
#ifndef COLUMN_CHECK_H
#define COLUMN_CHECK_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 300, WIDTH = 4 };

static int check_rank, check_size, check_peer, check_bad;

static double value_of(int rank, int seed, int row)
{
    return rank * 1000000.0 + seed * 1000.0 + row;
}

/* A matrix with a message in column 1; the rest must not change. */
typedef struct matrix {
    double cell[ROWS][WIDTH];
} matrix;

static void fill(matrix *m, int rank, int seed)
{
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < WIDTH; j++)
            m->cell[i][j] = j == 1 ? value_of(rank, seed, i) : -1;
}

static void clear(matrix *m)
{
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < WIDTH; j++)
            m->cell[i][j] = -2;
}

/* `rows` of the column came from `rank`; nothing else was touched. */
static int arrived(const matrix *m, int rank, int seed, int rows)
{
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < WIDTH; j++) {
            const double expected = j == 1 && i < rows ? value_of(rank, seed, i) : -2;
            if (m->cell[i][j] != expected) {
                printf("rank %d: seed %d: cell %d,%d is %g, not %g\n", check_rank, seed, i, j,
                       m->cell[i][j], expected);
                return 0;
            }
        }
    return 1;
}

static MPI_Datatype column_type(int rows)
{
    MPI_Datatype type;
    MPI_Type_vector(rows, 1, WIDTH, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    return type;
}

static void *column(matrix *m)
{
    return &m->cell[0][1];
}

static void verdict(const char *name, int good)
{
    int all = 0;
    MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    if (!all)
        check_bad++;
    if (check_rank == 0) {
        printf("%s %s\n", all ? "ok" : "BAD", name);
        fflush(stdout);
    }
}

static void check_begin(void)
{
    MPI_Comm_rank(MPI_COMM_WORLD, &check_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &check_size);
    check_peer = check_size == 1 ? 0 : check_rank ^ 1;
}

#endif
