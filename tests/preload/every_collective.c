/* Every collective that tempi carries, by several pairs of datatypes, in buffers that end where the
 * blocks end. The form is the first argument (collective_forms.h); with LARGE_COUNTS the functions
 * are those with large counts (count_names.h). "ok" for each pair of types; "LEFT" and a call that
 * tempi did not carry, unless the second argument is "left": the library does the calls, of fewer
 * types. If the second argument is "killed" the last rank is, after so many microseconds as the
 * third says, while all do one call after another. At the end each rank prints on stderr how many
 * tempi carried. */
#include "counted.h"
#include <signal.h>
#include <sys/time.h>

#include "block_types.h"
#include "collective_forms.h"
#include "column_check.h"

enum { MOST = 4, TWO = 2 };
static int by_the_library;

/* ---- the calls in their forms -----------------------------------------------------------------
 */

static int alltoall(const void *out, count_arg n, MPI_Datatype type, void *in, count_arg m,
                    MPI_Datatype into, MPI_Comm comm)
{
    IN_FORM(MPI_Alltoall, MPI_Ialltoall, MPI_Alltoall_init, out, n, type, in, m, into, comm);
}

static int allgather(const void *out, count_arg n, MPI_Datatype type, void *in, count_arg m,
                     MPI_Datatype into, MPI_Comm comm)
{
    IN_FORM(MPI_Allgather, MPI_Iallgather, MPI_Allgather_init, out, n, type, in, m, into, comm);
}

static int neighbor_allgather(const void *out, count_arg n, MPI_Datatype type, void *in,
                              count_arg m, MPI_Datatype into, MPI_Comm comm)
{
    IN_FORM(MPI_Neighbor_allgather, MPI_Ineighbor_allgather, MPI_Neighbor_allgather_init, out, n,
            type, in, m, into, comm);
}

static int alltoallv(const void *out, const count_arg *n, const displ_arg *at, MPI_Datatype type,
                     void *in, const count_arg *m, const displ_arg *to, MPI_Datatype into,
                     MPI_Comm comm)
{
    IN_FORM(MPI_Alltoallv, MPI_Ialltoallv, MPI_Alltoallv_init, out, n, at, type, in, m, to, into,
            comm);
}

static int allgatherv(const void *out, count_arg n, MPI_Datatype type, void *in, const count_arg *m,
                      const displ_arg *to, MPI_Datatype into, MPI_Comm comm)
{
    IN_FORM(MPI_Allgatherv, MPI_Iallgatherv, MPI_Allgatherv_init, out, n, type, in, m, to, into,
            comm);
}

static int neighbor_allgatherv(const void *out, count_arg n, MPI_Datatype type, void *in,
                               const count_arg *m, const displ_arg *to, MPI_Datatype into,
                               MPI_Comm comm)
{
    IN_FORM(MPI_Neighbor_allgatherv, MPI_Ineighbor_allgatherv, MPI_Neighbor_allgatherv_init, out, n,
            type, in, m, to, into, comm);
}

static int gatherv(const void *out, count_arg n, MPI_Datatype type, void *in, const count_arg *m,
                   const displ_arg *to, MPI_Datatype into, int root, MPI_Comm comm)
{
    IN_FORM(MPI_Gatherv, MPI_Igatherv, MPI_Gatherv_init, out, n, type, in, m, to, into, root, comm);
}

static int scatterv(const void *out, const count_arg *n, const displ_arg *at, MPI_Datatype type,
                    void *in, count_arg m, MPI_Datatype into, int root, MPI_Comm comm)
{
    IN_FORM(MPI_Scatterv, MPI_Iscatterv, MPI_Scatterv_init, out, n, at, type, in, m, into, root,
            comm);
}

static int bcast(void *buffer, count_arg n, MPI_Datatype type, int root, MPI_Comm comm)
{
    IN_FORM(MPI_Bcast, MPI_Ibcast, MPI_Bcast_init, buffer, n, type, root, comm);
}

/* ---- one exchange -------------------------------------------------------------------------------
 */

/* Process `from` has for process `to` one block or two; the others' blocks are two apart. */
typedef struct exchange {
    MPI_Comm comm, ring; /* the right neighbour twice, the left one twice */
    typed out, in;
    int rank, size, n[MOST], m[MOST];
    displ_arg out_at[MOST], in_at[MOST], bytes_at[MOST], bytes_to[MOST];
    MPI_Aint aint_at[MOST], aint_to[MOST];
    MPI_Datatype outs[MOST], ins[MOST];
    int *sent, *received, good, telling;
    long before;
} exchange;

static int blocks_of(int from, int to)
{
    return 1 + (from + to) % TWO;
}

static int value_from(int from, int to, int block)
{
    return from * 100000000 + to * 10000000 + block * 1000000;
}

/* Numbers of blocks as numbers of elements of their type; valid for a while. */
static const count_arg *elements(const typed *t, const int *blocks)
{
    static int turn;
    static count_arg numbers[32][MOST];
    count_arg *own = numbers[turn++ % 32];
    for (int i = 0; i < MOST; i++)
        own[i] = blocks[i] * t->per;
    return own;
}

static const count_arg *outs(const exchange *x, const int *blocks)
{
    return elements(&x->out, blocks);
}

static const count_arg *ins(const exchange *x, const int *blocks)
{
    return elements(&x->in, blocks);
}

/* To everyone, or along an edge. */
enum { ALL = 7, EDGE = 8 };

static void buffers_make(exchange *x, int out_blocks, int in_blocks)
{
    x->sent = buffer_make(&x->out, out_blocks);
    x->received = buffer_make(&x->in, in_blocks);
    x->before = counted("collectives");
}

static void buffers_free(exchange *x)
{
    free(x->sent);
    free(x->received);
}

static void block_comes(exchange *x, int from, int to, int block, int at)
{
    x->good &= block_is(&x->in, x->received, at, value_from(from, to, block));
}

static void carried(exchange *x, const char *name)
{
    if (x->telling && x->before >= 0 && counted("collectives") != x->before + 1)
        printf("LEFT %s by rank %d\n", name, x->rank);
}

static void fill_each(exchange *x)
{
    for (int i = 0; i < x->size; i++)
        for (int b = 0; b < TWO && i * TWO + b < TWO * (x->size - 1) + x->n[x->size - 1]; b++)
            block_fill(&x->out, x->sent, i * TWO + b, value_from(x->rank, i, b));
}

/* Blocks from each, as many as `n` says. */
static void each_comes(exchange *x, const int *n)
{
    for (int i = 0; i < x->size; i++)
        for (int b = 0; b < n[i]; b++)
            block_comes(x, i, x->rank, b, i * TWO + b);
}

static void to_each(exchange *x)
{
    const int last = x->size - 1, go = TWO * last + x->n[last], come = TWO * last + x->m[last];
    static const int all[MOST] = {TWO, TWO, TWO, TWO};
    buffers_make(x, TWO * x->size, TWO * x->size);
    for (int i = 0; i < TWO * x->size; i++)
        block_fill(&x->out, x->sent, i, value_from(x->rank, i / TWO, i % TWO));
    alltoall(x->sent, TWO * x->out.per, x->out.type, x->received, TWO * x->in.per, x->in.type,
             x->comm);
    carried(x, "Alltoall");
    each_comes(x, all);
    buffers_free(x);

    buffers_make(x, go, come);
    fill_each(x);
    alltoallv(x->sent, outs(x, x->n), x->out_at, x->out.type, x->received, ins(x, x->m), x->in_at,
              x->in.type, x->comm);
    carried(x, "Alltoallv");
    each_comes(x, x->m);
    buffers_free(x);

    buffers_make(x, go, come);
    fill_each(x);
    alltoallw(x->sent, outs(x, x->n), x->bytes_at, x->outs, x->received, ins(x, x->m), x->bytes_to,
              x->ins, x->comm);
    carried(x, "Alltoallw");
    each_comes(x, x->m);
    buffers_free(x);

    /* In place both directions have the same number of blocks. */
    buffers_make(x, 0, come);
    for (int i = 0; i < x->size; i++)
        for (int b = 0; b < x->m[i]; b++)
            block_fill(&x->in, x->received, i * TWO + b, value_from(x->rank, i, b));
    alltoallw(MPI_IN_PLACE, NULL, NULL, NULL, x->received, ins(x, x->m), x->bytes_to, x->ins,
              x->comm);
    carried(x, "Alltoallw in place");
    each_comes(x, x->m);
    buffers_free(x);
}

static void to_all(exchange *x)
{
    const int last = x->size - 1, mine = x->m[0];
    int from_all[MOST] = {0};
    for (int i = 0; i < x->size; i++)
        from_all[i] = blocks_of(i, 0);
    const int come = TWO * last + from_all[last];
    buffers_make(x, 1, x->size);
    block_fill(&x->out, x->sent, 0, value_from(x->rank, ALL, 0));
    allgather(x->sent, x->out.per, x->out.type, x->received, x->in.per, x->in.type, x->comm);
    carried(x, "Allgather");
    for (int i = 0; i < x->size; i++)
        block_comes(x, i, ALL, 0, i);
    buffers_free(x);

    buffers_make(x, mine, come);
    for (int b = 0; b < mine; b++)
        block_fill(&x->out, x->sent, b, value_from(x->rank, ALL, b));
    allgatherv(x->sent, mine * x->out.per, x->out.type, x->received, ins(x, from_all), x->in_at,
               x->in.type, x->comm);
    carried(x, "Allgatherv");
    for (int i = 0; i < x->size; i++)
        for (int b = 0; b < from_all[i]; b++)
            block_comes(x, i, ALL, b, i * TWO + b);
    buffers_free(x);

    buffers_make(x, 1, 1);
    block_fill(&x->out, x->sent, 0, value_from(x->rank, ALL, 0));
    if (x->rank == last)
        bcast(x->sent, x->out.per, x->out.type, last, x->comm);
    else
        bcast(x->received, x->in.per, x->in.type, last, x->comm);
    carried(x, "Bcast");
    if (x->rank != last)
        block_comes(x, last, ALL, 0, 0);
    buffers_free(x);
}

static void at_a_root(exchange *x)
{
    const int root = x->size - 1, at_root = x->rank == root;
    int n[MOST] = {0}, most;
    for (int i = 0; i < x->size; i++)
        n[i] = blocks_of(i, root);
    most = TWO * root + n[root];
    buffers_make(x, 1, at_root ? x->size : 0);
    block_fill(&x->out, x->sent, 0, value_from(x->rank, ALL, 0));
    gather(x->sent, x->out.per, x->out.type, x->received, x->in.per, x->in.type, root, x->comm);
    carried(x, "Gather");
    for (int i = 0; at_root && i < x->size; i++)
        block_comes(x, i, ALL, 0, i);
    buffers_free(x);

    buffers_make(x, n[x->rank], at_root ? most : 0);
    for (int b = 0; b < n[x->rank]; b++)
        block_fill(&x->out, x->sent, b, value_from(x->rank, ALL, b));
    gatherv(x->sent, n[x->rank] * x->out.per, x->out.type, x->received, ins(x, n), x->in_at,
            x->in.type, root, x->comm);
    carried(x, "Gatherv");
    for (int i = 0; at_root && i < x->size; i++)
        for (int b = 0; b < n[i]; b++)
            block_comes(x, i, ALL, b, i * TWO + b);
    buffers_free(x);

    buffers_make(x, at_root ? x->size : 0, 1);
    for (int i = 0; at_root && i < x->size; i++)
        block_fill(&x->out, x->sent, i, value_from(root, i, 0));
    scatter(x->sent, x->out.per, x->out.type, x->received, x->in.per, x->in.type, root, x->comm);
    carried(x, "Scatter");
    block_comes(x, root, x->rank, 0, 0);
    buffers_free(x);

    buffers_make(x, at_root ? most : 0, n[x->rank]);
    for (int i = 0; at_root && i < x->size; i++)
        for (int b = 0; b < n[i]; b++)
            block_fill(&x->out, x->sent, i * TWO + b, value_from(root, i, b));
    scatterv(x->sent, outs(x, n), x->out_at, x->out.type, x->received, n[x->rank] * x->in.per,
             x->in.type, root, x->comm);
    carried(x, "Scatterv");
    for (int b = 0; b < n[x->rank]; b++)
        block_comes(x, root, x->rank, b, b);
    buffers_free(x);
}

static void edges_come(exchange *x, int left)
{
    for (int e = 0; e < TWO; e++)
        block_comes(x, left, EDGE + e, 0, e * TWO);
    buffers_free(x);
}

static void edges_make(exchange *x, int come)
{
    buffers_make(x, TWO + 1, come);
    for (int e = 0; e < TWO; e++)
        block_fill(&x->out, x->sent, e * TWO, value_from(x->rank, EDGE + e, 0));
}

/* MPICH 4.0 exchanges the blocks of a neighbour that comes twice. */
static int keeps_order(void)
{
#if defined MPICH_NUMVERSION && MPICH_NUMVERSION < 40100000
    return !by_the_library;
#else
    return 1;
#endif
}

static void to_neighbors(exchange *x)
{
    static const int one[MOST] = {1, 1};
    const int left = (x->rank + x->size - 1) % x->size;
    buffers_make(x, TWO, TWO);
    for (int e = 0; e < TWO; e++)
        block_fill(&x->out, x->sent, e, value_from(x->rank, EDGE + e, 0));
    neighbor_alltoall(x->sent, x->out.per, x->out.type, x->received, x->in.per, x->in.type,
                      x->ring);
    carried(x, "Neighbor_alltoall");
    for (int e = 0; keeps_order() && e < TWO; e++)
        block_comes(x, left, EDGE + e, 0, e);
    buffers_free(x);

    edges_make(x, TWO + 1);
    neighbor_alltoallv(x->sent, outs(x, one), x->out_at, x->out.type, x->received, ins(x, one),
                       x->in_at, x->in.type, x->ring);
    carried(x, "Neighbor_alltoallv");
    edges_come(x, left);

    edges_make(x, TWO + 1);
    neighbor_alltoallw(x->sent, outs(x, one), x->aint_at, x->outs, x->received, ins(x, one),
                       x->aint_to, x->ins, x->ring);
    carried(x, "Neighbor_alltoallw");
    edges_come(x, left);

    edges_make(x, TWO + 1);
    MPI_Aint from[TWO], into[TWO];
    for (int e = 0; e < TWO; e++) {
        MPI_Get_address((char *)x->sent + x->aint_at[e], &from[e]);
        MPI_Get_address((char *)x->received + x->aint_to[e], &into[e]);
    }
    neighbor_alltoallw(MPI_BOTTOM, outs(x, one), from, x->outs, MPI_BOTTOM, ins(x, one), into,
                       x->ins, x->ring);
    carried(x, "Neighbor_alltoallw from MPI_BOTTOM");
    edges_come(x, left);

    buffers_make(x, 1, TWO);
    block_fill(&x->out, x->sent, 0, value_from(x->rank, ALL, 0));
    neighbor_allgather(x->sent, x->out.per, x->out.type, x->received, x->in.per, x->in.type,
                       x->ring);
    carried(x, "Neighbor_allgather");
    for (int e = 0; e < TWO; e++)
        block_comes(x, left, ALL, 0, e);
    buffers_free(x);

    buffers_make(x, 1, TWO + 1);
    block_fill(&x->out, x->sent, 0, value_from(x->rank, ALL, 0));
    neighbor_allgatherv(x->sent, x->out.per, x->out.type, x->received, ins(x, one), x->in_at,
                        x->in.type, x->ring);
    carried(x, "Neighbor_allgatherv");
    for (int e = 0; e < TWO; e++)
        block_comes(x, left, ALL, 0, e * TWO);
    buffers_free(x);
}

static void ring_make(exchange *x)
{
    const int right = (x->rank + 1) % x->size, left = (x->rank + x->size - 1) % x->size;
    const int sources[] = {left, left}, targets[] = {right, right};
    MPI_Dist_graph_create_adjacent(x->comm, TWO, sources, MPI_UNWEIGHTED, TWO, targets,
                                   MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &x->ring);
}

static void types_make(exchange *x, int pair)
{
    pair_make(pair, &x->out, &x->in);
    for (int i = 0; i < MOST; i++) { /* one process has two neighbours too */
        x->n[i] = blocks_of(x->rank, i);
        x->m[i] = blocks_of(i, x->rank);
        x->out_at[i] = TWO * i * x->out.per;
        x->in_at[i] = TWO * i * x->in.per;
        x->aint_at[i] = x->bytes_at[i] = TWO * i * x->out.extent * (int)sizeof(int);
        x->aint_to[i] = x->bytes_to[i] = TWO * i * x->in.extent * (int)sizeof(int);
        x->outs[i] = x->out.type;
        x->ins[i] = x->in.type;
    }
}

static void types_free(exchange *x)
{
    typed_free(&x->out);
    typed_free(&x->in);
}

static void every_call(exchange *x)
{
    to_each(x);
    to_all(x);
    at_a_root(x);
    to_neighbors(x);
}

/* ---- requests of a communicator that is freed meanwhile
 * ------------------------------------------ */

/* Requests of Open MPI 4.1 do not. */
static int survives_its_end(void)
{
#if defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION < 5
    return !by_the_library;
#else
    return 1;
#endif
}

static void communicators_free(exchange *x)
{
    MPI_Comm_free(&x->ring);
    MPI_Comm_free(&x->comm);
}

/* Three of them, completed after it in another order. */
static void communicator_freed(int pair)
{
    exchange x = {.rank = check_rank, .size = check_size, .good = 1, .telling = 0};
    const form wanted = by_form;
    MPI_Request requests[3];
    int index, *in[2];
    MPI_Comm_dup(MPI_COMM_WORLD, &x.comm);
    ring_make(&x);
    types_make(&x, pair);
    by_form = BLOCKING;
    every_call(&x);
    by_form = NONBLOCKING;
    to_each(&x); /* the library does the first one; the processes agree in the barrier */
    MPI_Barrier(x.comm);
    by_form = wanted;
    const int root = x.size - 1;
    buffers_make(&x, TWO * x.size, TWO * x.size);
    for (int i = 0; i < TWO * x.size; i++)
        block_fill(&x.out, x.sent, i, value_from(x.rank, i / TWO, i % TWO));
    in[0] = buffer_make(&x.in, x.size);
    in[1] = buffer_make(&x.in, 1);
#ifdef PERSISTENT_COLLECTIVES
    if (wanted == PERSISTENT) {
        BY_COUNTS(MPI_Alltoall_init)(x.sent, TWO * x.out.per, x.out.type, x.received,
                                     TWO * x.in.per, x.in.type, x.comm, MPI_INFO_NULL,
                                     &requests[0]);
        BY_COUNTS(MPI_Gather_init)(x.sent, x.out.per, x.out.type, in[0], x.in.per, x.in.type, root,
                                   x.comm, MPI_INFO_NULL, &requests[1]);
        BY_COUNTS(MPI_Scatter_init)(x.sent, x.out.per, x.out.type, in[1], x.in.per, x.in.type, root,
                                    x.comm, MPI_INFO_NULL, &requests[2]);
        MPI_Startall(3, requests);
    } else
#endif
    {
        BY_COUNTS(MPI_Ialltoallw)(x.sent, outs(&x, x.n), x.bytes_at, x.outs, x.received,
                                  ins(&x, x.m), x.bytes_to, x.ins, x.comm, &requests[0]);
        BY_COUNTS(MPI_Igather)(x.sent, x.out.per, x.out.type, in[0], x.in.per, x.in.type, root,
                               x.comm, &requests[1]);
        BY_COUNTS(MPI_Iscatter)(x.sent, x.out.per, x.out.type, in[1], x.in.per, x.in.type, root,
                                x.comm, &requests[2]);
    }
    if (x.size > 1 && !by_the_library && x.before >= 0 && counted("collectives") != x.before + 3)
        printf("LEFT %ld of 3 calls before a communicator is freed\n",
               x.before + 3 - counted("collectives"));
    if (survives_its_end())
        communicators_free(&x);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Waitany(3, requests, &index, MPI_STATUS_IGNORE);
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    if (!survives_its_end())
        communicators_free(&x);
    for (int i = 0; i < x.size; i++)
        for (int b = 0; b < x.m[i]; b++)
            block_comes(&x, i, x.rank, b, TWO * i + b);
    for (int i = 0; x.rank == root && i < x.size; i++)
        x.good &= block_is(&x.in, in[0], i, value_from(i, 0, 0));
    x.good &= block_is(&x.in, in[1], 0, value_from(root, x.rank / TWO, x.rank % TWO));
    for (int i = 0; wanted == PERSISTENT && i < 3; i++)
        MPI_Request_free(&requests[i]);
    free(in[0]);
    free(in[1]);
    buffers_free(&x);
    types_free(&x);
    verdict("communicator freed", x.good);
}

/* Not by the library's handler, if it has one, but at once. */
static void call_until_killed(exchange *x, int microseconds)
{
    const struct itimerval once = {.it_value = {.tv_usec = microseconds}};
    types_make(x, 1);
    x->telling = 1;
    MPI_Barrier(x->comm);
    if (x->rank == x->size - 1) {
        signal(SIGALRM, SIG_DFL);
        setitimer(ITIMER_REAL, &once, NULL);
    }
    for (;;)
        every_call(x);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    const char *name = argc > 1 ? argv[1] : "blocking";
    choose_form(strcmp(name, "blocking") == 0 ? NULL : name);
    const form wanted = by_form;
    by_the_library = argc > 2 && strcmp(argv[2], "left") == 0;
    const int pairs = by_the_library ? 3 : PAIRS;
    exchange x = {.comm = MPI_COMM_WORLD, .rank = check_rank, .size = check_size};
    ring_make(&x);
    for (int turn = 0; turn < (wanted == BLOCKING ? pairs : pairs + 1); turn++) {
        const int first = wanted != BLOCKING &&
                          turn == 0; /* the library's own, then the processes agree */
        char of_pair[32];
        x.good = 1;
        types_make(&x, turn % pairs);
        for (int again = 0; again < 2; again++) {
            by_form = first && again == 0 ? BLOCKING : wanted;
            /* A process alone has nothing to do in some. */
            x.telling = !first && x.size > 1 && !by_the_library;
            every_call(&x);
        }
        if (first) {
            MPI_Barrier(x.comm);
            MPI_Barrier(x.ring);
        }
        types_free(&x);
        if (argc > 3)
            call_until_killed(&x, atoi(argv[3]));
        snprintf(of_pair, sizeof of_pair, "types %d", turn % pairs);
        verdict(of_pair, x.good);
    }
    for (int pair = 0; wanted != BLOCKING && pair < pairs; pair++) {
        by_form = wanted;
        communicator_freed(pair);
    }
    MPI_Comm_free(&x.ring);
    fprintf(stderr, "rank %d: collectives %ld\n", check_rank, counted("collectives"));
    MPI_Finalize();
    return check_bad != 0;
}
