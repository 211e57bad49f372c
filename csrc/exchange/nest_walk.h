/* The runs of a block one after another, in the order of its packed bytes.
 *
 * Only of blocks that are one perfect nest of runs (one box without a table: vectors, subarrays and
 * what is built of them) or contiguous. Described by value, so that another process can walk it. */
#ifndef TEMPI_EXCHANGE_NEST_WALK_H
#define TEMPI_EXCHANGE_NEST_WALK_H

#include "exchange/mapped.h"
#include "pack/pack.h"

#include <stdbool.h>

enum { TEMPI_NEST_DIMS = 6 };

/* Fixed size: it is passed through shared memory. */
typedef struct tempi_nest_shape {
    uint64_t first; /* address of the first run */
    int64_t run;    /* bytes */
    int64_t runs;
    int32_t ndims;
    int32_t block;       /* its index in the flow */
    tempi_mapped memory; /* in which it lies; all zero: not in memory that others map */
    struct {
        int64_t count, stride;
    } dims[TEMPI_NEST_DIMS]; /* outermost first */
} tempi_nest_shape;

/* False: the block has another structure, or more dimensions. */
bool tempi_nest_describe(const tempi_op *block, tempi_nest_shape *out);

typedef struct tempi_nest_walk {
    const tempi_nest_shape *shape;
    uint64_t at;  /* address of the next byte */
    int64_t left; /* bytes of the run in progress; 0: the nest has ended */
    int64_t index[TEMPI_NEST_DIMS];
} tempi_nest_walk;

/* Its lowest byte, and one past its highest. */
void tempi_nest_bounds(const tempi_nest_shape *shape, uint64_t *from, uint64_t *to);

/* A nest as an operation of packing. */
typedef struct tempi_nest_op {
    tempi_op op; /* points to the other members */
    tempi_layout layout;
    tempi_box box;
} tempi_nest_op;

/* Of that nest with its first run at `first`. */
void tempi_nest_as_op(const tempi_nest_shape *shape, const char *first, tempi_nest_op *out);

void tempi_nest_begin(tempi_nest_walk *walk, const tempi_nest_shape *shape);
/* Steps over n bytes of the run in progress, 0 < n <= left. */
void tempi_nest_step(tempi_nest_walk *walk, int64_t n);

#endif
