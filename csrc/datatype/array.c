/* datatype/array.c: subarray and darray (MPI-5.0 sections 5.1.3 and 5.1.4).
 *
 * Both are built one array dimension at a time from the fastest to the slowest, as the standard
 * defines them: each step takes the type so far, of extent e, and puts some of `whole` elements at
 * multiples of e; the result has lower bound 0 and extent whole * e. */
#include "datatype/layout_builder.h"

typedef struct array_state {
    tempi_builder builder;
    int64_t size, extent; /* of the type so far */
} array_state;

static int array_begin(array_state *a, const tempi_layout *inner)
{
    tempi_builder_init(&a->builder);
    a->size = inner->size;
    a->extent = inner->extent;
    return tempi_builder_block(&a->builder, inner, 1, 0);
}

static int builder_shift(tempi_builder *builder, int64_t offset, int64_t packed)
{
    for (int64_t i = 0; i < builder->nboxes; i++) {
        if (tempi_add64(builder->boxes[i].offset, offset, &builder->boxes[i].offset))
            return TEMPI_ERR_OVERFLOW;
        builder->boxes[i].packed += packed;
    }
    return TEMPI_OK;
}

static int array_end(int status, array_state *a, tempi_layout **out)
{
    a->builder.size = a->size;
    a->builder.lb = 0;
    a->builder.ub = a->extent;
    return tempi_builder_layout(status, &a->builder, out);
}

/* The next dimension is cyclic(k) over p processes, of which this is number r: the array's `whole`
 * elements are distributed in blocks of k. Block b of this process is block b * p + r of the array;
 * the array's last block may be short. So the full blocks are one nest, and a short one adds one
 * row. */
typedef struct deal {
    int64_t whole, k, p, r;
    int64_t full; /* full blocks of this process */
    int64_t rest; /* elements of its short block, 0 if it has none */
} deal;

static void deal_count(deal *d)
{
    const int64_t blocks = d->whole / d->k; /* full ones, of all processes */
    d->full = blocks / d->p + (d->r < blocks % d->p ? 1 : 0);
    d->rest = blocks % d->p == d->r ? d->whole % d->k : 0;
}

/* Repeats the boxes of `builder`, elements of this dimension, as rows of `length` from `start`. */
static int array_rows(const array_state *a, tempi_builder *builder, int64_t rows, int64_t row_step,
                      int64_t length, int64_t start)
{
    int64_t offset, stride;
    if (tempi_mul64(start, a->extent, &offset) || tempi_mul64(row_step, a->extent, &stride))
        return TEMPI_ERR_OVERFLOW;
    int status = tempi_builder_repeat(builder, 0, length, a->extent, a->size);
    if (!status)
        status = tempi_builder_repeat(builder, 0, rows, stride, length * a->size);
    return status ? status : builder_shift(builder, offset, 0);
}

static int builder_copy(tempi_builder *to, const tempi_builder *from)
{
    int status = tempi_builder_reserve(to, from->nboxes);
    for (int64_t i = 0; i < from->nboxes && !status; i++)
        status = tempi_builder_append(to, &from->boxes[i]);
    return status;
}

/* Full blocks and a short one. */
static int array_deal_both(array_state *a, const deal *d)
{
    tempi_builder tail;
    tempi_builder_init(&tail);
    int status = builder_copy(&tail, &a->builder);
    if (!status)
        status = array_rows(a, &tail, 1, 0, d->rest, (d->full * d->p + d->r) * d->k);
    if (!status)
        status = builder_shift(&tail, 0, d->full * d->k * a->size);
    if (!status)
        status = array_rows(a, &a->builder, d->full, d->k * d->p, d->k, d->r * d->k);
    if (!status)
        status = builder_copy(&a->builder, &tail);
    tempi_builder_clear(&tail);
    return status;
}

static int array_deal(array_state *a, const deal *d)
{
    int64_t size, extent;
    if (tempi_mul64(d->full * d->k + d->rest, a->size, &size) ||
        tempi_mul64(d->whole, a->extent, &extent))
        return TEMPI_ERR_OVERFLOW;
    int status = TEMPI_OK;
    if (size == 0)
        tempi_builder_empty(&a->builder);
    else if (d->full == 0)
        status = array_rows(a, &a->builder, 1, 0, d->rest, d->r * d->k);
    else if (d->rest == 0)
        status = array_rows(a, &a->builder, d->full, d->k * d->p, d->k, d->r * d->k);
    else
        status = array_deal_both(a, d);
    a->size = size;
    a->extent = extent;
    return status;
}

int tempi_layout_subarray(int ndims, const int64_t *sizes, const int64_t *subsizes,
                          const int64_t *starts, int order, const tempi_layout *inner,
                          tempi_layout **out)
{
    if (ndims < 1 || !sizes || !subsizes || !starts || !inner || !out ||
        (order != TEMPI_ORDER_C && order != TEMPI_ORDER_FORTRAN))
        return TEMPI_ERR_ARG;
    for (int d = 0; d < ndims; d++)
        if (sizes[d] < 0 || subsizes[d] < 0 || starts[d] < 0 || starts[d] > sizes[d] - subsizes[d])
            return TEMPI_ERR_ARG;
    array_state a;
    int status = array_begin(&a, inner);
    for (int i = 0; i < ndims && !status; i++) {
        const int d = order == TEMPI_ORDER_C ? ndims - 1 - i : i;
        int64_t size, extent;
        if (tempi_mul64(subsizes[d], a.size, &size) || tempi_mul64(sizes[d], a.extent, &extent))
            status = TEMPI_ERR_OVERFLOW;
        else if (size == 0)
            tempi_builder_empty(&a.builder);
        else
            status = array_rows(&a, &a.builder, 1, 0, subsizes[d], starts[d]);
        if (!status) {
            a.size = size;
            a.extent = extent;
        }
    }
    return array_end(status, &a, out);
}

/* Evaluates the distribution of one dimension; false: the arguments contradict each other. */
static bool deal_make(deal *d, int distrib, int64_t darg, int64_t gsize, int64_t psize,
                      int64_t coordinate)
{
    *d = (deal){.whole = gsize, .p = psize, .r = coordinate};
    if (gsize < 1 || psize < 1)
        return false;
    const bool given = darg != TEMPI_DISTRIBUTE_DFLT_DARG;
    switch (distrib) {
    case TEMPI_DISTRIBUTE_BLOCK: d->k = given ? darg : gsize / psize + (gsize % psize != 0); break;
    case TEMPI_DISTRIBUTE_CYCLIC: d->k = given ? darg : 1; break;
    case TEMPI_DISTRIBUTE_NONE:
        d->k = gsize;
        if (psize != 1)
            return false;
        break;
    default: return false;
    }
    if (d->k < 1)
        return false;
    if (distrib == TEMPI_DISTRIBUTE_BLOCK && d->k < gsize / psize + (gsize % psize != 0))
        return false;
    if (d->k > gsize)
        d->k = gsize + 1; /* all in one short block for any k; avoids overflow of k * p */
    deal_count(d);
    return true;
}

int tempi_layout_darray(int size, int rank, int ndims, const int64_t *gsizes, const int *distribs,
                        const int64_t *dargs, const int64_t *psizes, int order,
                        const tempi_layout *inner, tempi_layout **out)
{
    if (size < 1 || rank < 0 || rank >= size || ndims < 1 || !gsizes || !distribs || !dargs ||
        !psizes || !inner || !out || (order != TEMPI_ORDER_C && order != TEMPI_ORDER_FORTRAN))
        return TEMPI_ERR_ARG;
    int64_t processes = 1;
    for (int d = 0; d < ndims; d++)
        if (psizes[d] < 1 || psizes[d] > size || (processes *= psizes[d]) > size)
            return TEMPI_ERR_ARG;
    if (processes != size)
        return TEMPI_ERR_ARG;
    array_state a;
    int status = array_begin(&a, inner);
    /* The grid of processes is row-major in both orders: the last coordinate runs fastest. */
    int64_t below[2] = {1,
                        /* Processes in the dimensions after d (C), or from d on (Fortran). */
                        size};
    for (int i = 0; i < ndims && !status; i++) {
        const bool c = order == TEMPI_ORDER_C;
        const int d = c ? ndims - 1 - i : i;
        below[1] /= c ? 1 : psizes[d];
        const int64_t coordinate = rank / (c ? below[0] : below[1]) % psizes[d];
        below[0] *= psizes[d];
        deal one;
        if (!deal_make(&one, distribs[d], dargs[d], gsizes[d], psizes[d], coordinate))
            status = TEMPI_ERR_ARG;
        else
            status = array_deal(&a, &one);
    }
    return array_end(status, &a, out);
}
