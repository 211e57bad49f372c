/* MPI_Alltoallw and MPI_Neighbor_alltoallw of derived datatypes, as the first argument says:
 *
 *     each          of every kind, a verdict for each; the second argument: how many times
 *     duplicates    on duplicates of the world that are freed, which must leave no memory behind
 *     full          as "each", but no process may make a file of more than 64 KiB
 *     blind         as "each", but the last rank may not open files
 *     threads       of several threads, each on a communicator of its own
 *     together      of several threads, each with a persistent request of one communicator
 *     session       one rank has a session beside the world
 *     killed        the last rank is killed while the others exchange with it
 *     errors        wrong arguments, each on a communicator that returns its errors
 *
 * EXCHANGES_FORM=nonblocking or persistent: by the functions of that form.
 *
 * At the end each rank prints on stderr how many collectives tempi carried. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "column_check.h"

enum { MOST = 16, AREA = 4 * 3000, THREADS = 4 };

static long counted(const char *which)
{
    const char *(*name)(int) = (const char *(*)(int))dlsym(RTLD_DEFAULT, "tempi_stats_name");
    unsigned long (*value)(int) = (unsigned long (*)(int))dlsym(RTLD_DEFAULT, "tempi_stats_value");
    for (int i = 0; name && value && name(i); i++)
        if (strcmp(name(i), which) == 0)
            return (long)value(i);
    return -1;
}

/* ---- forms ----------------------------------------------------------------------------------- */

/* Open MPI has them since its version 5, beside MPI 3.1. */
#if MPI_VERSION >= 4 || (defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5)
#define PERSISTENT_COLLECTIVES
#endif

typedef enum form { BLOCKING, NONBLOCKING, PERSISTENT } form;
static form by_form;

static void choose_form(const char *name)
{
    by_form = !name ? BLOCKING : strcmp(name, "persistent") == 0 ? PERSISTENT : NONBLOCKING;
#ifndef PERSISTENT_COLLECTIVES
    if (by_form == PERSISTENT)
        printf("no persistent collectives: MPI %d.%d\n", MPI_VERSION, MPI_SUBVERSION);
#endif
}

/* In another way each time. */
static int completed(MPI_Request *request)
{
    static _Thread_local int turn;
    int flag = 0, which, rc = MPI_SUCCESS;
    MPI_Status status;
    switch (turn++ % 4) {
    case 0: return MPI_Wait(request, MPI_STATUS_IGNORE);
    case 1:
        while (rc == MPI_SUCCESS && !flag)
            rc = MPI_Test(request, &flag, MPI_STATUS_IGNORE);
        return rc;
    case 2: return MPI_Waitany(1, request, &which, MPI_STATUS_IGNORE);
    default:
        rc = MPI_Waitall(1, request, &status);
        return rc == MPI_ERR_IN_STATUS ? status.MPI_ERROR : rc;
    }
}

static int started_and_completed(MPI_Request *request)
{
    int rc = MPI_Start(request);
    if (rc == MPI_SUCCESS)
        rc = completed(request);
    if (*request != MPI_REQUEST_NULL)
        MPI_Request_free(request);
    return rc;
}

/* A function in the form that was chosen. */
#ifdef PERSISTENT_COLLECTIVES
#define IN_FORM(BLOCKING_NAME, NONBLOCKING_NAME, PERSISTENT_NAME, ...)                         \
    do {                                                                                       \
        MPI_Request request_ = MPI_REQUEST_NULL;                                               \
        int rc_;                                                                               \
        if (by_form == BLOCKING)                                                               \
            return BLOCKING_NAME(__VA_ARGS__);                                                 \
        rc_ = by_form == NONBLOCKING ? NONBLOCKING_NAME(__VA_ARGS__, &request_)                \
                                     : PERSISTENT_NAME(__VA_ARGS__, MPI_INFO_NULL, &request_); \
        return rc_ != MPI_SUCCESS       ? rc_                                                  \
               : by_form == NONBLOCKING ? completed(&request_)                                 \
                                        : started_and_completed(&request_);                    \
    } while (0)
#else
#define IN_FORM(BLOCKING_NAME, NONBLOCKING_NAME, PERSISTENT_NAME, ...) \
    do {                                                               \
        MPI_Request request_ = MPI_REQUEST_NULL;                       \
        if (by_form == BLOCKING)                                       \
            return BLOCKING_NAME(__VA_ARGS__);                         \
        const int rc_ = NONBLOCKING_NAME(__VA_ARGS__, &request_);      \
        return rc_ != MPI_SUCCESS ? rc_ : completed(&request_);        \
    } while (0)
#endif

static int alltoallw(const void *out, const int *outcounts, const int *outdispls,
                     const MPI_Datatype *outtypes, void *in, const int *incounts,
                     const int *indispls, const MPI_Datatype *intypes, MPI_Comm comm)
{
    IN_FORM(MPI_Alltoallw, MPI_Ialltoallw, MPI_Alltoallw_init, out, outcounts, outdispls, outtypes,
            in, incounts, indispls, intypes, comm);
}

static int neighbor_alltoallw(const void *out, const int *outcounts, const MPI_Aint *outdispls,
                              const MPI_Datatype *outtypes, void *in, const int *incounts,
                              const MPI_Aint *indispls, const MPI_Datatype *intypes, MPI_Comm comm)
{
    IN_FORM(MPI_Neighbor_alltoallw, MPI_Ineighbor_alltoallw, MPI_Neighbor_alltoallw_init, out,
            outcounts, outdispls, outtypes, in, incounts, indispls, intypes, comm);
}

static int gather(const void *out, int outcount, MPI_Datatype outtype, void *in, int incount,
                  MPI_Datatype intype, int root, MPI_Comm comm)
{
    IN_FORM(MPI_Gather, MPI_Igather, MPI_Gather_init, out, outcount, outtype, in, incount, intype,
            root, comm);
}

static int scatter(const void *out, int outcount, MPI_Datatype outtype, void *in, int incount,
                   MPI_Datatype intype, int root, MPI_Comm comm)
{
    IN_FORM(MPI_Scatter, MPI_Iscatter, MPI_Scatter_init, out, outcount, outtype, in, incount,
            intype, root, comm);
}

/* ---- one exchange ---------------------------------------------------------------------------- */

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

/* To the right, from the left. */
static int to_neighbors(MPI_Comm comm, int seed)
{
    call c;
    MPI_Comm ring;
    call_make(comm, seed, &c);
    int right = (c.rank + 1) % c.size, left = (c.rank + c.size - 1) % c.size;
    MPI_Aint nowhere = 0;
    MPI_Dist_graph_create_adjacent(comm, 1, &left, MPI_UNWEIGHTED, 1, &right, MPI_UNWEIGHTED,
                                   MPI_INFO_NULL, 0, &ring);
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

/* ---- communicators --------------------------------------------------------------------------- */

/* Mappings of shared memory, and files of this process there. */
static int mappings(void)
{
    char line[512];
    int n = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        n += strstr(line, "/dev/shm/tempi-") != NULL;
    if (maps)
        fclose(maps);
    return n;
}

static int files(void)
{
    char own[64];
    int n = 0;
    snprintf(own, sizeof own, "tempi-%lu-%x6", (unsigned long)geteuid(), (unsigned)getpid());
    DIR *folder = opendir("/dev/shm");
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        n += strncmp(entry->d_name, own, strlen(own)) == 0;
    if (folder)
        closedir(folder);
    return n;
}

static void duplicates(void)
{
    enum { KINDS = 5 };
    int good = 1, first = 0;
    for (int turn = 0; turn < 6 * KINDS; turn++) {
        MPI_Comm own, half;
        MPI_Comm_dup(MPI_COMM_WORLD, &own);
        MPI_Comm_split(own, check_rank / 2, -check_rank, &half);
        good &= agree(own) & agree(half);
        good &= all_to_all(own, turn % KINDS) & all_to_all(half, turn % KINDS);
        MPI_Comm_free(&own);
        good &= in_place(half, turn % KINDS);
        MPI_Comm_free(&half);
        first = turn == 2 * KINDS ? mappings() : first; /* their memory is used again */
    }
    verdict("duplicates", good);
    verdict("mappings", mappings() <= first);
    verdict("files", files() == 0);
}

typedef struct worker {
    pthread_t thread;
    MPI_Comm comm;
    int good;
} worker;

static void *work(void *argument)
{
    worker *w = argument;
    w->good = 1;
    for (int turn = 0; turn < 6; turn++)
        w->good &= of_every_kind(w->comm, turn);
    return NULL;
}

/* Open MPI 4 opens files at the first one, and not for threads. */
static void load_topologies(void)
{
    (void)to_neighbors(MPI_COMM_SELF, 1);
}

static void threads(void)
{
    static worker workers[THREADS];
    int good = 1;
    load_topologies();
    for (int i = 0; i < THREADS; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &workers[i].comm);
    for (int i = 0; i < THREADS; i++)
        good &= agree(workers[i].comm);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < THREADS; i++) {
        good &= workers[i].good;
        MPI_Comm_free(&workers[i].comm);
    }
    verdict("threads", good);
}

/* Each thread gathers columns of its own at a root of its own, so that ranks start them in any
 * order. */
typedef struct gatherer {
    pthread_t thread;
    MPI_Request request;
    double out[4 * 50], in[MOST * 4 * 50];
    int root, good;
} gatherer;

static void *gather_often(void *argument)
{
    gatherer *g = argument;
    g->good = 1;
    for (int turn = 0; turn < 500; turn++) {
        for (int k = 0; k < 50; k++)
            g->out[4 * k] = cell_of(check_rank, g->root, turn, k);
        memset(g->in, 0, sizeof g->in);
        MPI_Start(&g->request);
        MPI_Wait(&g->request, MPI_STATUS_IGNORE);
        for (int i = 0; i < 200 * check_size; i++)
            g->good &= g->in[i] == (check_rank == g->root && i % 4 == 0
                                        ? cell_of(i / 200, g->root, turn, i % 200 / 4)
                                        : 0);
    }
    return NULL;
}

static void together(void)
{
#ifdef PERSISTENT_COLLECTIVES
    static gatherer all[THREADS];
    int good = 1;
    MPI_Datatype column = strided(50, 4), columns;
    MPI_Type_create_resized(column, 0, 200 * sizeof(double), &columns);
    MPI_Type_commit(&columns);
    for (int i = 0; i < THREADS; i++) {
        all[i].root = i % check_size;
        MPI_Gather_init(all[i].out, 1, columns, all[i].in, 1, columns, all[i].root, MPI_COMM_WORLD,
                        MPI_INFO_NULL, &all[i].request);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_create(&all[i].thread, NULL, gather_often, &all[i]);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(all[i].thread, NULL);
        good &= all[i].good;
        MPI_Request_free(&all[i].request);
    }
    verdict("together", good);
    MPI_Type_free(&column);
    MPI_Type_free(&columns);
#else
    puts("no persistent collectives");
#endif
}

static void session(void)
{
#if MPI_VERSION >= 4
    MPI_Session one;
    MPI_Group group;
    MPI_Comm own;
    if (check_rank == 0)
        MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &one);
    MPI_Comm_dup(MPI_COMM_WORLD, &own);
    verdict("one rank has a session", agree(own) & of_every_kind(own, 3));
    MPI_Comm_free(&own);
    if (check_rank != 0)
        MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &one);
    MPI_Group_from_session_pset(one, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "tempi.test", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &own);
    MPI_Group_free(&group);
    verdict("a communicator of the session", of_every_kind(own, 2));
    MPI_Comm_free(&own);
    MPI_Session_finalize(&one);
    MPI_Comm_dup(MPI_COMM_WORLD, &own);
    const int good = of_every_kind(own, 2);
    MPI_Comm_free(&own);
    verdict("after the session", good);
#else
    printf("no sessions: MPI %d.%d\n", MPI_VERSION, MPI_SUBVERSION);
#endif
}

static void limit(int resource, rlim_t most)
{
    struct rlimit now;
    getrlimit(resource, &now);
    now.rlim_cur = most;
    setrlimit(resource, &now);
}

/* After MPI_Init: the library has what it needs. */
static void without_memory(int full)
{
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    signal(SIGXFSZ, SIG_IGN); /* MPICH makes files without looking at the limit */
    load_topologies();
    MPI_Barrier(MPI_COMM_WORLD);
    if (full)
        limit(RLIMIT_FSIZE, 64 << 10);
    else if (check_rank == check_size - 1)
        limit(RLIMIT_NOFILE, 3);
    each(3, 1);
    limit(RLIMIT_FSIZE, RLIM_INFINITY);
    limit(RLIMIT_NOFILE, files.rlim_cur);
}

static void killed(void)
{
    (void)agree(MPI_COMM_WORLD);
    for (int turn = 0;; turn++) {
        if (turn == 3 && check_rank == check_size - 1)
            kill(getpid(), SIGKILL);
        (void)of_every_kind(MPI_COMM_WORLD, turn);
    }
}

/* ---- errors ---------------------------------------------------------------------------------- */

typedef enum fault {
    NEGATIVE_SEND,
    NEGATIVE_RECEIVE,
    UNCOMMITTED_SEND,
    UNCOMMITTED_RECEIVE,
    NULL_TYPE,
    SHORT_RECEIVE,
    SHORT_SELF,
    SHORT_IN_PLACE,
    FAULTS
} fault;

static int class_of(int code)
{
    int class = MPI_SUCCESS;
    if (code != MPI_SUCCESS)
        MPI_Error_class(code, &class);
    return class;
}

/* All ranks make the mistake at once, as none of them gets an answer otherwise. */
static int mistake(MPI_Comm comm, fault which)
{
    call c;
    MPI_Datatype raw, shorter = strided(9, 4), longer = strided(99, 4);
    call_make(comm, 7, &c);
    MPI_Type_vector(5, 1, 2, MPI_DOUBLE, &raw);
    const int peer = c.size == 1 ? 0 : c.rank ^ 1;
    MPI_Datatype out[MOST], in[MOST];
    for (int i = 0; i < c.size; i++) {
        out[i] = in[i] = longer;
        c.sendcounts[i] = c.recvcounts[i] = 1;
    }
    if (which == NEGATIVE_SEND)
        c.sendcounts[peer] = -1;
    else if (which == NEGATIVE_RECEIVE)
        c.recvcounts[peer] = -1;
    else if (which == UNCOMMITTED_SEND)
        out[peer] = raw;
    else if (which == UNCOMMITTED_RECEIVE)
        in[peer] = raw, out[peer] = shorter;
    else if (which == NULL_TYPE)
        in[peer] = MPI_DATATYPE_NULL;
    else if (which == SHORT_RECEIVE)
        in[peer] = shorter;
    else if (which == SHORT_SELF)
        in[c.rank] = shorter;
    else if (c.rank % 2) /* what it gets is longer */
        in[peer] = shorter;
    if (which == UNCOMMITTED_RECEIVE) {
        MPI_Type_free(&shorter);
        shorter = out[peer] = strided(5, 4);
    }
    const int in_place = which == SHORT_IN_PLACE;
    const int code = alltoallw(in_place ? MPI_IN_PLACE : c.out, c.sendcounts, c.senddispls, out,
                               c.in, c.recvcounts, c.recvdispls, in, comm);
    MPI_Type_free(&raw);
    MPI_Type_free(&shorter);
    MPI_Type_free(&longer);
    call_free(&c);
    return class_of(code);
}

/* MPICH 4.0 commits them, and tempi duplicates the types of these calls. */
static int duplicates_are_committed(void)
{
#if defined MPICH_NUMVERSION && MPICH_NUMVERSION < 40100000
    return by_form != BLOCKING;
#else
    return 0;
#endif
}

static void errors(int first, int last)
{
    static const struct {
        const char *name;
        int class;
    } expected[FAULTS] = {
        {"negative count to send", MPI_ERR_COUNT},
        {"negative count to receive", MPI_ERR_COUNT},
        {"uncommitted type to send", MPI_ERR_TYPE},
        {"uncommitted type to receive", MPI_ERR_TYPE},
        {"no type", MPI_ERR_TYPE},
        {"short receive", MPI_ERR_TRUNCATE},
        {"short receive of this process", MPI_ERR_TRUNCATE},
        {"short receive in place", MPI_ERR_TRUNCATE},
    };
    for (int i = first; i <= last; i++) {
        MPI_Comm own;
        MPI_Comm_dup(MPI_COMM_WORLD, &own);
        (void)agree(own);
        MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
        const int class = mistake(own, i);
        const int bears = i == SHORT_IN_PLACE && check_rank % 2 == 0 ? MPI_SUCCESS
                                                                     : expected[i].class;
        /* Libraries have classes of their own for truncation here. */
        const int good = counted("collectives") < 0 && bears == MPI_ERR_TRUNCATE
                             ? class != MPI_SUCCESS
                             : class == bears ||
                                   (bears == MPI_ERR_TYPE && duplicates_are_committed());
        if (!good)
            printf("rank %d: %s: class %d\n", check_rank, expected[i].name, class);
        verdict(expected[i].name, good);
        if (class == MPI_SUCCESS || i < SHORT_RECEIVE)
            MPI_Comm_free(&own);
    }
    by_form = BLOCKING; /* MPICH 4.0 exchanges wrong bytes in place by the others */
    verdict("the world still works", of_every_kind(MPI_COMM_WORLD, 2));
}

int main(int argc, char **argv)
{
    int provided;
    const char *what = argc > 1 ? argv[1] : "each";
    if (strcmp(what, "threads") == 0 || strcmp(what, "together") == 0) {
        MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
        if (provided != MPI_THREAD_MULTIPLE)
            MPI_Abort(MPI_COMM_WORLD, 3);
    } else {
        MPI_Init(&argc, &argv);
    }
    check_begin();
    choose_form(getenv("EXCHANGES_FORM"));
    if (strcmp(what, "each") == 0 || strcmp(what, "left") == 0)
        each(argc > 2 ? atoi(argv[2]) : 4, strcmp(what, "left") == 0);
    else if (strcmp(what, "full") == 0 || strcmp(what, "blind") == 0)
        without_memory(strcmp(what, "full") == 0);
    else if (strcmp(what, "duplicates") == 0)
        duplicates();
    else if (strcmp(what, "threads") == 0)
        threads();
    else if (strcmp(what, "together") == 0)
        together();
    else if (strcmp(what, "session") == 0)
        session();
    else if (strcmp(what, "killed") == 0)
        killed();
    else
        errors(argc > 2 ? atoi(argv[2]) : 0, argc > 3 ? atoi(argv[3]) : FAULTS - 1);
    fprintf(stderr, "rank %d: collectives %ld refused %ld split %ld\n", check_rank,
            counted("collectives"), counted("refused_shared_memory"), counted("collectives_split"));
    MPI_Finalize();
    return check_bad != 0;
}
