/* Exchanges of every kind on a communicator, each checked. */
#ifndef EXCHANGE_KINDS_H
#define EXCHANGE_KINDS_H

#include "collective_forms.h"
#include "column_check.h"

#include <unistd.h>

enum { MOST = 16, AREA = 4 * 3000 };

typedef struct call {
    double *out, *in;
    int size, rank, seed;
    int sendcounts[MOST], recvcounts[MOST], senddispls[MOST], recvdispls[MOST];
    MPI_Datatype sendtypes[MOST], recvtypes[MOST];
} call;

/* Doubles from one rank to another, some none at all. */
static int rows_of(int from, int to, int seed)
{
    static const int most[] = {1, 40, 700, 3000};
    return (from * 7 + to * 5 + seed * 11) % (most[seed % 4] + 1);
}

static double cell_of(int from, int to, int seed, int row)
{
    return from * 1e8 + to * 1e7 + seed % 1000 * 1e4 + row;
}

static MPI_Datatype strided(int rows, int stride)
{
    MPI_Datatype type;
    MPI_Type_vector(rows, 1, stride, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    return type;
}

/* Of a communicator's size: every fourth double goes out, and comes in as every third. */
static void call_make(MPI_Comm comm, int seed, call *c)
{
    c->seed = seed;
    MPI_Comm_rank(comm, &c->rank);
    MPI_Comm_size(comm, &c->size);
    c->out = malloc(sizeof(double) * (size_t)c->size * AREA);
    c->in = malloc(sizeof(double) * (size_t)c->size * AREA);
    for (int i = 0; i < c->size * AREA; i++)
        c->out[i] = -1, c->in[i] = -2;
    for (int i = 0; i < c->size; i++) {
        const int goes = rows_of(c->rank, i, seed), comes = rows_of(i, c->rank, seed);
        for (int k = 0; k < goes; k++)
            c->out[i * AREA + 4 * k] = cell_of(c->rank, i, seed, k);
        c->sendcounts[i] = c->recvcounts[i] = 1;
        c->senddispls[i] = c->recvdispls[i] = (int)sizeof(double) * AREA * i;
        c->sendtypes[i] = strided(goes, 4);
        c->recvtypes[i] = strided(comes, 3);
    }
}

static void call_free(call *c)
{
    for (int i = 0; i < c->size; i++) {
        MPI_Type_free(&c->sendtypes[i]);
        MPI_Type_free(&c->recvtypes[i]);
    }
    free(c->out);
    free(c->in);
}

/* What came is there, with that stride, and nothing else was touched. */
static int came(const call *c, const double *in, int from, int stride, double rest)
{
    const int comes = rows_of(from, c->rank, c->seed);
    for (int k = 0; k < AREA; k++) {
        const int row = k % stride == 0 && k / stride < comes;
        if (in[k] != (row ? cell_of(from, c->rank, c->seed, k / stride) : rest)) {
            printf("rank %d: seed %d: from %d: double %d is %g\n", c->rank, c->seed, from, k,
                   in[k]);
            return 0;
        }
    }
    return 1;
}

static int all_to_all(MPI_Comm comm, int seed)
{
    call c;
    int good = 1;
    call_make(comm, seed, &c);
    alltoallw(c.out, c.sendcounts, c.senddispls, c.sendtypes, c.in, c.recvcounts, c.recvdispls,
              c.recvtypes, comm);
    for (int i = 0; i < c.size; i++)
        good &= came(&c, c.in + i * AREA, i, 3, -2);
    call_free(&c);
    return good;
}

/* Both directions have the same number of rows. */
static int in_place(MPI_Comm comm, int seed)
{
    call c;
    int good = 1;
    call_make(comm, seed, &c);
    for (int i = 0; i < c.size; i++) {
        const int low = i < c.rank ? i : c.rank, high = i < c.rank ? c.rank : i;
        const int rows = rows_of(low, high, seed);
        MPI_Type_free(&c.recvtypes[i]);
        c.recvtypes[i] = strided(rows, 4);
        for (int k = 0; k < rows; k++)
            c.out[i * AREA + 4 * k] = cell_of(c.rank, i, seed, k);
        for (int k = rows; k < AREA / 4; k++)
            c.out[i * AREA + 4 * k] = -1;
    }
    alltoallw(MPI_IN_PLACE, NULL, NULL, NULL, c.out, c.recvcounts, c.recvdispls, c.recvtypes, comm);
    for (int i = 0; i < c.size; i++) {
        const int low = i < c.rank ? i : c.rank, high = i < c.rank ? c.rank : i;
        for (int k = 0; k < AREA / 4; k++)
            good &= c.out[i * AREA + 4 * k] ==
                    (k < rows_of(low, high, seed) ? cell_of(i, c.rank, seed, k) : -1);
    }
    call_free(&c);
    return good;
}

/* In place; processes to which nothing goes have a type without bytes, at the place of another. */
static int in_place_with_empty_types(MPI_Comm comm)
{
    int rank, size, counts[MOST], displs[MOST];
    MPI_Datatype types[MOST], empty;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    MPI_Type_contiguous(0, MPI_DOUBLE, &empty);
    MPI_Type_commit(&empty);
    double cell = rank;
    for (int i = 0; i < size; i++) {
        counts[i] = 1;
        displs[i] = 0;
        types[i] = i == (rank ^ 1) ? MPI_DOUBLE : empty;
    }
    alltoallw(MPI_IN_PLACE, NULL, NULL, NULL, &cell, counts, displs, types, comm);
    MPI_Type_free(&empty);
    return cell == ((rank ^ 1) < size ? rank ^ 1 : rank);
}

/* The library does the first nonblocking call of a communicator; in the next blocking one its
 * processes agree on the others. */
static void meet(MPI_Comm comm)
{
    int size, none[MOST] = {0};
    char sent = 0, received = 0;
    MPI_Datatype bytes[MOST];
    MPI_Request request;
    MPI_Comm_size(comm, &size);
    if (by_form != NONBLOCKING || size == 1)
        return;
    for (int i = 0; i < size; i++)
        bytes[i] = MPI_BYTE;
    MPI_Ialltoallw(&sent, none, none, bytes, &received, none, none, bytes, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Barrier(comm);
}

/* To the right, from the left; from the last process late. */
static int to_neighbors(MPI_Comm comm, int seed)
{
    call c;
    MPI_Comm ring;
    call_make(comm, seed, &c);
    int right = (c.rank + 1) % c.size, left = (c.rank + c.size - 1) % c.size;
    MPI_Aint nowhere = 0;
    MPI_Dist_graph_create_adjacent(comm, 1, &left, MPI_UNWEIGHTED, 1, &right, MPI_UNWEIGHTED,
                                   MPI_INFO_NULL, 0, &ring);
    if (c.rank == c.size - 1)
        usleep(3000);
    neighbor_alltoallw(c.out + right * AREA, c.sendcounts, &nowhere, &c.sendtypes[right],
                       c.in + left * AREA, c.recvcounts, &nowhere, &c.recvtypes[left], ring);
    const int good = came(&c, c.in + left * AREA, left, 3, -2);
    MPI_Comm_free(&ring);
    call_free(&c);
    return good;
}

/* 3 MiB in runs of a page, between two strides. */
static int long_runs(MPI_Comm comm, int seed)
{
    enum { RUN = 512, RUNS = 768 };
    int rank, size, good = 1, counts[MOST], displs[MOST];
    MPI_Datatype send, receive, out[MOST], in[MOST];
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    MPI_Type_vector(RUNS, RUN, 2 * RUN, MPI_DOUBLE, &send);
    MPI_Type_vector(RUNS / 2, 2 * RUN, 3 * RUN, MPI_DOUBLE, &receive);
    MPI_Type_commit(&send);
    MPI_Type_commit(&receive);
    double *from = malloc(sizeof(double) * 2 * RUN * RUNS),
           *to = calloc(3 * RUN * RUNS / 2, sizeof(double));
    for (int i = 0; i < 2 * RUN * RUNS; i++)
        from[i] = i / RUN % 2 ? -1 : rank * 1e7 + seed * 1e6 + i / RUN / 2 * RUN + i % RUN;
    const int right = (rank + 1) % size, left = (rank + size - 1) % size;
    for (int i = 0; i < size; i++) {
        counts[i] = displs[i] = 0;
        out[i] = send;
        in[i] = receive;
    }
    int sends[MOST];
    memcpy(sends, counts, sizeof sends);
    sends[right] = counts[left] = 1;
    alltoallw(from, sends, displs, out, to, counts, displs, in, comm);
    for (int i = 0; i < 3 * RUN * RUNS / 2; i++) {
        const int k = i / (3 * RUN) * 2 * RUN + i % (3 * RUN);
        good &= to[i] == (i % (3 * RUN) < 2 * RUN ? left * 1e7 + seed * 1e6 + k : 0);
    }
    MPI_Type_free(&send);
    MPI_Type_free(&receive);
    free(from);
    free(to);
    return good;
}

/* What a root in place does not use may be anything. */
static int at_a_root(MPI_Comm comm, int seed)
{
    int rank, size, good = 1;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    const int root = seed % size, at_root = rank == root;
    MPI_Datatype every_third = strided(50, 3), resized, none = strided(7, 2), freed = none;
    MPI_Type_free(&none);
    none = seed % 2 ? freed : MPI_DATATYPE_NULL;
    MPI_Type_create_resized(every_third, 0, 150 * sizeof(double), &resized);
    MPI_Type_commit(&resized);
    double *cells = calloc((size_t)size * 150, sizeof *cells);
    double *own = cells + 150 * rank;
    for (int k = 0; k < 50; k++)
        own[3 * k] = cell_of(rank, root, seed, k);
    gather(at_root ? MPI_IN_PLACE : own, at_root ? -1 : 1, at_root ? none : resized, cells,
           at_root ? 1 : -1, at_root ? resized : none, root, comm);
    for (int i = 0; at_root && i < 150 * size; i++)
        good &= cells[i] == (i % 3 == 0 ? cell_of(i / 150, root, seed, i % 150 / 3) : 0);
    for (int i = 0; i < 150 * size; i++)
        cells[i] = at_root ? i : -1;
    scatter(cells, at_root ? 1 : -1, at_root ? resized : none, at_root ? MPI_IN_PLACE : own,
            at_root ? -1 : 1, at_root ? none : resized, root, comm);
    for (int i = 0; i < 150 * size; i++)
        good &= cells[i] == (at_root || (i / 150 == rank && i % 3 == 0) ? i : -1);
    free(cells);
    MPI_Type_free(&every_third);
    MPI_Type_free(&resized);
    return good;
}

/* Nonblocking calls go by what the processes agreed on in blocking ones. */
static int agree(MPI_Comm comm)
{
    const form wanted = by_form;
    if (wanted != NONBLOCKING)
        return 1;
    by_form = BLOCKING;
    const int good = all_to_all(comm, 1) & at_a_root(comm, 1);
    by_form = wanted;
    meet(comm);
    return good;
}

static int of_every_kind(MPI_Comm comm, int seed)
{
    return all_to_all(comm, seed) & in_place(comm, seed) & to_neighbors(comm, seed) &
           long_runs(comm, seed % 9);
}

/* Open MPI 5.0 does not return from nonblocking and persistent calls in place with such types. */
static int survives_empty_types(int by_the_library)
{
#ifdef OMPI_MAJOR_VERSION
    return !by_the_library || by_form == BLOCKING;
#else
    (void)by_the_library;
    return 1;
#endif
}

static void each(int times, int by_the_library)
{
    int good[6] = {1, 1, 1, 1, 1, 1};
    verdict("agreed", agree(MPI_COMM_WORLD));
    for (int i = 0; i < times; i++) {
        good[0] &= all_to_all(MPI_COMM_WORLD, i);
        good[1] &= in_place(MPI_COMM_WORLD, i);
        if (survives_empty_types(by_the_library))
            good[2] &= in_place_with_empty_types(MPI_COMM_WORLD);
        good[3] &= to_neighbors(MPI_COMM_WORLD, i);
        good[4] &= long_runs(MPI_COMM_WORLD, i % 9);
        good[5] &= at_a_root(MPI_COMM_WORLD, i);
    }
    verdict("all to all", good[0]);
    verdict("in place", good[1]);
    verdict("in place, empty types", good[2]);
    verdict("neighbours", good[3]);
    verdict("long runs", good[4]);
    verdict("at a root", good[5]);
    verdict("of this process alone", all_to_all(MPI_COMM_SELF, 3) & in_place(MPI_COMM_SELF, 3));
}

#endif
