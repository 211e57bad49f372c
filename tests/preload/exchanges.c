/* MPI_Alltoallw and MPI_Neighbor_alltoallw of derived datatypes, as the first argument says:
 *
 *     each          of every kind, a verdict for each; the second argument: how many times
 *     duplicates    on duplicates of the world that are freed, which must leave no memory behind
 *     full          as "each", but no process may make a file of more than 64 KiB
 *     blind         as "each", but the last rank may not open files
 *     threads       of several threads, each on a communicator of its own
 *     together      of several threads, each with a persistent request of one communicator
 *     session       one rank has a session beside the world
 *     opposite      of neighbours that are one process, with one datatype: predefined and derived
 *     long          of columns of 40 MiB, and ten of 8 MiB at once
 *     killed        the last rank is killed while the others exchange with it
 *     errors        wrong arguments, each on a communicator that returns its errors
 *
 * EXCHANGES_FORM=nonblocking or persistent: by the functions of that form.
 *
 * At the end each rank prints on stderr how many collectives tempi carried. */
#include "counted.h"
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "exchange_kinds.h"

enum { THREADS = 4 };

/* ---- communicators --------------------------------------------------------------------------- */

/* Mappings of shared memory, and files of this process there. */
static int mappings(void)
{
    char line[512];
    int n = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        n += strstr(line, "/dev/shm/tempi-") || strstr(line, "/memfd:tempi");
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

/* Columns of so many doubles from each rank to each other, `times` at once. */
static int columns(int rows, int times)
{
    enum { MANY = 10 };
    const size_t area = 2 * (size_t)rows, all = area * (size_t)check_size;
    double *out = malloc(all * sizeof *out), *in = malloc(all * (size_t)times * sizeof *in);
    MPI_Datatype column = strided(rows, 2), types[MOST];
    MPI_Request requests[MANY];
    int counts[MOST], places[MOST], good = 1;
    for (size_t i = 0; i < all; i++)
        out[i] = check_rank * 1e9 + (double)i;
    memset(in, 0, all * (size_t)times * sizeof *in);
    for (int i = 0; i < check_size; i++) {
        counts[i] = 1;
        places[i] = (int)(i * area * sizeof *out);
        types[i] = column;
    }
    for (int t = 0; t < times; t++)
        if (times == 1)
            good &= alltoallw(out, counts, places, types, in, counts, places, types,
                              MPI_COMM_WORLD) == MPI_SUCCESS;
        else
            MPI_Ialltoallw(out, counts, places, types, in + all * (size_t)t, counts, places, types,
                           MPI_COMM_WORLD, &requests[t]);
    if (times > 1)
        MPI_Waitall(times, requests, MPI_STATUSES_IGNORE);
    for (size_t i = 0; i < all * (size_t)times; i++) {
        const size_t at = i % all % area;
        const double came = (double)(i % all / area) * 1e9 +
                            (double)((size_t)check_rank * area + at);
        good &= in[i] == (at % 2 == 0 ? came : 0);
    }
    MPI_Type_free(&column);
    free(out);
    free(in);
    return good;
}

static void bulky(void)
{
    (void)agree(MPI_COMM_WORLD);
    verdict("one of 40 MiB", columns(5 << 20, 1));
    if (by_form == NONBLOCKING)
        verdict("ten of 8 MiB", columns(1 << 20, 10));
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

/* ---- neighbours that are one process --------------------------------------------------------- */

/* To and from four neighbours, two elements each: the last rank has a strided type, the others
 * doubles. What goes up comes from below. */
static int to_opposite(MPI_Comm grid, int with_counts)
{
    static const int counts[] = {1, 1, 1, 1}, doubles[] = {2, 2, 2, 2};
    enum { EXTENT = 3 };
    int rank, size, near[4], good = 1;
    double out[4 * EXTENT], in[4 * EXTENT];
    MPI_Comm_rank(grid, &rank);
    MPI_Comm_size(grid, &size);
    const int is_strided = rank == size - 1, stride = is_strided ? EXTENT : 2;
    const int places[] = {0, is_strided ? 1 : 2, is_strided ? 2 : 4, is_strided ? 3 : 6};
    MPI_Datatype column = strided(2, 2);
    for (int d = 0; d < 2; d++)
        MPI_Cart_shift(grid, d, 1, &near[2 * d], &near[2 * d + 1]);
    for (int i = 0; i < 4 * EXTENT; i++)
        out[i] = 100 * rank + i / stride, in[i] = -1;
    const MPI_Datatype type = is_strided ? column : MPI_DOUBLE;
    const int n = is_strided ? 1 : 2;
    if (with_counts)
        neighbor_alltoallv(out, is_strided ? counts : doubles, places, type, in,
                           is_strided ? counts : doubles, places, type, grid);
    else
        neighbor_alltoall(out, n, type, in, n, type, grid);
    for (int e = 0; e < 4; e++)
        for (int k = 0; k < 2; k++)
            good &= in[e * stride + k * (is_strided ? 2 : 1)] == 100 * near[e] + (e ^ 1);
    MPI_Type_free(&column);
    if (!good)
        printf("rank %d: not of the opposite neighbour\n", rank);
    return good;
}

static void opposite(void)
{
    static const int periodic[] = {1, 1};
    int dims[] = {2, 0}, size, good[2] = {1, 1};
    MPI_Comm grid, duplicate;
    MPI_Request duplicated;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    dims[1] = size / 2;
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periodic, 0, &grid);
    for (int turn = 0; turn < 8; turn++)
        good[turn % 2] &= to_opposite(grid, turn % 2);
    verdict("with one count", good[0]);
    verdict("with a count for each", good[1]);
    MPI_Comm_idup(grid, &duplicate, &duplicated); /* which may not wait, so nothing is agreed on */
    MPI_Wait(&duplicated, MPI_STATUS_IGNORE);
    verdict("of a duplicate", to_opposite(duplicate, 0));
    MPI_Comm_free(&duplicate);
    MPI_Comm_free(&grid);
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
    else if (strcmp(what, "opposite") == 0)
        opposite();
    else if (strcmp(what, "long") == 0)
        bulky();
    else if (strcmp(what, "killed") == 0)
        killed();
    else
        errors(argc > 2 ? atoi(argv[2]) : 0, argc > 3 ? atoi(argv[3]) : FAULTS - 1);
    fprintf(stderr, "rank %d: collectives %ld refused %ld split %ld\n", check_rank,
            counted("collectives"), counted("refused_shared_memory"), counted("collectives_split"));
    MPI_Finalize();
    return check_bad != 0;
}
