/* Datatypes of ints with the place of each int, and buffers of blocks of them that end with the
 * last int: a byte read or written beyond is in no allocation. */
#ifndef BLOCK_TYPES_H
#define BLOCK_TYPES_H

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

typedef struct typed {
    MPI_Datatype type;
    int n, extent; /* in ints, of a block */
    int *place;    /* of the block's ints, in its order */
    int per;       /* elements of the type that are a block */
} typed;

static int highest(const typed *t)
{
    int most = 0;
    for (int i = 0; i < t->n; i++)
        most = t->place[i] > most ? t->place[i] : most;
    return most;
}

/* The type `raw` with room for the next block behind it. */
static typed typed_of(MPI_Datatype raw, int n, int *place)
{
    typed t = {MPI_DATATYPE_NULL, n, 0, place, 1};
    t.extent = highest(&t) + 3;
    MPI_Type_create_resized(raw, 0, t.extent * (MPI_Aint)sizeof(int), &t.type);
    MPI_Type_commit(&t.type);
    MPI_Type_free(&raw);
    return t;
}

static void typed_free(typed *t)
{
    if (t->type != MPI_INT)
        MPI_Type_free(&t->type);
    free(t->place);
}

static typed vector_of(int count, int run, int stride)
{
    MPI_Datatype raw;
    int *place = malloc(sizeof(int) * (size_t)(count * run));
    for (int i = 0; i < count * run; i++)
        place[i] = i / run * stride + i % run;
    MPI_Type_vector(count, run, stride, MPI_INT, &raw);
    return typed_of(raw, count * run, place);
}

/* Without a derived datatype. */
static typed ints_of(int n)
{
    int *place = malloc(sizeof(int) * (size_t)n);
    for (int i = 0; i < n; i++)
        place[i] = i;
    return (typed){MPI_INT, n, n, place, n};
}

/* Runs of 1 to 4 ints, the later ones at lower places. */
static typed irregular_of(int n)
{
    MPI_Datatype raw;
    int *place = malloc(sizeof(int) * (size_t)n), *lengths = malloc(sizeof(int) * (size_t)n);
    int *begins = malloc(sizeof(int) * (size_t)n), runs = 0, done = 0;
    for (; done < n; runs++) {
        const int wanted = 1 + runs * 7 % 4, run = wanted < n - done ? wanted : n - done;
        lengths[runs] = run;
        begins[runs] = 5 * (n - runs) + runs % 2;
        for (int k = 0; k < run; k++)
            place[done++] = begins[runs] + k;
    }
    MPI_Type_indexed(runs, lengths, begins, MPI_INT, &raw);
    free(lengths);
    free(begins);
    return typed_of(raw, n, place);
}

/* A box at the end of an array of three dimensions. */
static typed box_of(int a, int b, int c)
{
    MPI_Datatype raw;
    const int sizes[] = {a + 1, b + 2, c + 3}, parts[] = {a, b, c}, starts[] = {1, 2, 3};
    int *place = malloc(sizeof(int) * (size_t)(a * b * c)), n = 0;
    for (int i = 0; i < a; i++)
        for (int j = 0; j < b; j++)
            for (int k = 0; k < c; k++)
                place[n++] = ((i + 1) * sizes[1] + j + 2) * sizes[2] + k + 3;
    MPI_Type_create_subarray(3, sizes, parts, starts, MPI_ORDER_C, MPI_INT, &raw);
    return typed_of(raw, n, place);
}

enum { PAIRS = 9 };

/* Both have the same number of ints. */
static void pair_make(int which, typed *out, typed *in)
{
    switch (which) {
    case 0: *out = vector_of(200, 1, 4), *in = vector_of(200, 1, 3); break;
    case 1: *out = irregular_of(301), *in = vector_of(1, 301, 301); break;
    case 2: *out = box_of(6, 5, 10), *in = irregular_of(300); break;
    case 3: *out = vector_of(64, 512, 700), *in = vector_of(32, 1024, 1500); break; /* long runs */
    case 4: *out = vector_of(5, 1, 2), *in = vector_of(1, 5, 5); break;             /* 20 bytes */
    case 5: *out = vector_of(30000, 1, 2), *in = vector_of(10000, 3, 4); break;
    case 6: *out = box_of(40, 30, 33), *in = box_of(33, 40, 30); break;
    case 7: *out = vector_of(300, 1, 3), *in = ints_of(300); break;
    default: *out = ints_of(7000), *in = irregular_of(7000);
    }
}

/* ---- buffers ------------------------------------------------------------------------------------
 */

enum { BLANK = -7 };

/* Of that many blocks. */
static int *buffer_make(const typed *t, int blocks)
{
    const int ints = blocks > 0 ? (blocks - 1) * t->extent + highest(t) + 1 : 0;
    int *buffer = malloc(sizeof(int) * (size_t)ints);
    for (int i = 0; i < ints; i++)
        buffer[i] = BLANK;
    return buffer;
}

static void block_fill(const typed *t, int *buffer, int block, int value)
{
    for (int i = 0; i < t->n; i++)
        buffer[block * t->extent + t->place[i]] = value + i;
}

static int block_is(const typed *t, const int *buffer, int block, int value)
{
    int good = 1;
    for (int i = 0; i < t->n; i++)
        good &= buffer[block * t->extent + t->place[i]] == value + i;
    return good;
}

#endif
