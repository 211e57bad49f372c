/* small_stack BYTES: a thread with a stack of so many bytes is the first to use irregular types,
 * and calls collectives. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { TURNS = 40, BLOCKS = 20, COPIES = 5, STRIDE = 1000, INTS = COPIES * STRIDE };

static int rank, size, bad;
static int out[INTS], in[INTS], gathered[2 * INTS];

/* COPIES of an irregular block, a stride apart, and their sum in memory that holds its indices. */
static MPI_Datatype irregular(int turn, long *sum)
{
    int lengths[BLOCKS], places[BLOCKS];
    MPI_Datatype block, type;
    *sum = 0;
    for (int j = 0; j < BLOCKS; j++) {
        lengths[j] = 1 + (turn * 7 + j * 3) % 5;
        places[j] = j * 9 + (turn * j) % 3;
        for (int i = 0; i < lengths[j]; i++)
            for (int copy = 0; copy < COPIES; copy++)
                *sum += copy * STRIDE + places[j] + i;
    }
    MPI_Type_indexed(BLOCKS, lengths, places, MPI_INT, &block);
    MPI_Type_create_hvector(COPIES, 1, STRIDE * (MPI_Aint)sizeof(int), block, &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&block);
    return type;
}

static void check(long sum, const int *memory, int n)
{
    long found = 0;
    for (int i = 0; i < n; i++)
        found += memory[i];
    bad += found != sum;
}

static void clear(int *memory, int n)
{
    for (int i = 0; i < n; i++)
        memory[i] = 0;
}

static void *work(void *unused)
{
    const int peer = 1 - rank, counts[2] = {1, 1}, none[2] = {0, 0},
              places[2] = {0, (int)sizeof in};
    (void)unused;
    for (int turn = 0; turn < TURNS; turn++) {
        long sum;
        MPI_Datatype type = irregular(turn, &sum), types[2] = {type, type}, spread;
        clear(in, INTS);
        MPI_Sendrecv(out, 1, type, peer, 1, in, 1, type, peer, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        check(sum, in, INTS);
        clear(gathered, 2 * INTS);
        MPI_Alltoallw(out, counts, none, types, gathered, counts, places, types, MPI_COMM_WORLD);
        check(2 * sum, gathered, 2 * INTS);
        MPI_Type_create_resized(type, 0, (MPI_Aint)sizeof out, &spread);
        MPI_Type_commit(&spread);
        clear(gathered, 2 * INTS);
        MPI_Gather(out, 1, type, gathered, 1, spread, turn % 2, MPI_COMM_WORLD);
        check(rank == turn % 2 ? 2 * sum : 0, gathered, 2 * INTS);
        MPI_Type_free(&spread);
        MPI_Type_free(&type);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int provided, all;
    pthread_attr_t attributes;
    pthread_t thread;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < INTS; i++)
        out[i] = i;
    if (size != 2 || argc != 2 || pthread_attr_init(&attributes) != 0 ||
        pthread_attr_setstacksize(&attributes, (size_t)atol(argv[1])) != 0 ||
        pthread_create(&thread, &attributes, work, NULL) != 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    pthread_join(thread, NULL);
    MPI_Allreduce(&bad, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%s small stack\n", all == 0 ? "ok" : "WRONG");
    MPI_Finalize();
    return 0;
}
