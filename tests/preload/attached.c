/* Collectives of blocks in memory that was not allocated by MPI or tempi, of which some parts
 * overlap: each rank sends each other one another part in turn. Prints "ok" once. Argument:
 * blocking or nonblocking. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    ROWS = 400,
    RUN = 200,
    STRIDE = 256,
    BLOCK = ROWS * STRIDE,
    TURNS = 400,
    PARTS = 5,
    RANKS = 8
};

static unsigned char byte_of(int turn, int rank, size_t at)
{
    return (unsigned char)(at % 251 + 7 * (size_t)turn + 31 * (size_t)rank);
}

static void fill(unsigned char *memory, size_t bytes, int turn, int rank)
{
    for (size_t i = 0; i < bytes; ++i)
        memory[i] = byte_of(turn, rank, i);
}

static int wrong_bytes(const unsigned char *got, int turn, int from, size_t at)
{
    int wrong = 0;
    for (int row = 0; row < ROWS; ++row)
        for (int i = 0; i < STRIDE; ++i) {
            const size_t place = (size_t)row * STRIDE + (size_t)i;
            wrong += got[place] != (i < RUN ? byte_of(turn, from, at + place) : 0xA5);
        }
    return wrong;
}

int main(int argc, char **argv)
{
    int rank, size, wrong = 0, all = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int nonblocking = argc > 1 && strcmp(argv[1], "nonblocking") == 0;
    const size_t bytes = (size_t)(size + PARTS) * BLOCK;
    const int file = memfd_create("sent", 0);
    unsigned char *sent = ftruncate(file, (off_t)bytes) == 0
                              ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                              : MAP_FAILED;
    unsigned char *got = malloc((size_t)size * BLOCK);
    MPI_Datatype block, types[RANKS];
    int counts[RANKS], to[RANKS], from[RANKS];
    if (sent == MAP_FAILED || !got || size > RANKS)
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Type_vector(ROWS, RUN, STRIDE, MPI_BYTE, &block);
    MPI_Type_commit(&block);
    for (int turn = 0; turn < TURNS; ++turn) {
        const int part = turn % PARTS;
        fill(sent, bytes, turn, rank);
        memset(got, 0xA5, (size_t)size * BLOCK);
        for (int i = 0; i < size; ++i) {
            types[i] = block;
            counts[i] = 1;
            to[i] = i * BLOCK + part * (BLOCK * 3 / 4);
            from[i] = i * BLOCK;
        }
        if (nonblocking && turn > 0) {
            MPI_Request request;
            MPI_Ialltoallw(sent, counts, to, types, got, counts, from, types, MPI_COMM_WORLD,
                           &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else
            MPI_Alltoallw(sent, counts, to, types, got, counts, from, types, MPI_COMM_WORLD);
        if (turn % 16 == 1) /* where the processes agree on nonblocking ones */
            MPI_Barrier(MPI_COMM_WORLD);
        memset(sent, 0xEE, bytes); /* nobody may read it any more */
        for (int i = 0; i < size; ++i)
            wrong += wrong_bytes(got + (size_t)i * BLOCK, turn, i,
                                 (size_t)rank * BLOCK + (size_t)part * (BLOCK * 3 / 4));
    }
    MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf(all == 0 ? "ok\n" : "%d wrong bytes\n", all);
    MPI_Type_free(&block);
    MPI_Finalize();
    return wrong != 0;
}
