#include "exchange/nest_walk.h"

#include <string.h>

static void add_dim(tempi_nest_shape *out, int64_t count, int64_t stride)
{
    if (count == 1)
        return;
    out->dims[out->ndims].count = count;
    out->dims[out->ndims++].stride = stride;
    out->runs *= count;
}

/* Its dimensions are not set: to clear all of it takes as long as to copy a short block. */
static void begin(const tempi_op *block, int64_t offset, int64_t run, tempi_nest_shape *out)
{
    out->first = (uint64_t)(uintptr_t)block->mem + (uint64_t)offset;
    out->run = run;
    out->runs = run > 0 ? 1 : 0;
    out->ndims = out->block = 0;
    out->memory = (tempi_mapped){0};
}

bool tempi_nest_describe(const tempi_op *block, tempi_nest_shape *out)
{
    const tempi_layout *layout = block->layout;
    if (!layout || layout->dense || block->n == 0) {
        begin(block, layout && block->n > 0 ? layout->true_lb : 0, block->n, out);
        return true;
    }
    const tempi_box *box = layout->boxes;
    if (layout->nboxes != 1 || box->table || box->space != 0 || box->ndims >= TEMPI_NEST_DIMS)
        return false;
    begin(block, box->offset, box->run, out);
    add_dim(out, block->count, layout->extent);
    for (int d = 0; d < box->ndims; ++d)
        add_dim(out, box->dims[d].count, box->dims[d].stride);
    return true;
}

void tempi_nest_bounds(const tempi_nest_shape *shape, uint64_t *from, uint64_t *to)
{
    *from = *to = shape->first;
    for (int d = 0; d < shape->ndims; ++d) {
        const int64_t reach = (shape->dims[d].count - 1) * shape->dims[d].stride;
        *(reach < 0 ? from : to) += (uint64_t)reach;
    }
    *to += (uint64_t)shape->run;
}

void tempi_nest_as_op(const tempi_nest_shape *shape, const char *first, tempi_nest_op *out)
{
    const int64_t bytes = shape->run * shape->runs;
    int64_t span = shape->run;
    memset(out, 0, sizeof *out);
    out->box.run = shape->run;
    out->box.ndims = shape->ndims;
    for (int d = shape->ndims - 1; d >= 0; --d) {
        out->box.dims[d] = (tempi_dim){shape->dims[d].count, shape->dims[d].stride, span};
        span *= shape->dims[d].count;
    }
    out->layout = (tempi_layout){.size = bytes,
                                 .extent = bytes,
                                 .runs = shape->runs,
                                 .nboxes = 1,
                                 .dense = shape->ndims == 0,
                                 .boxes = &out->box};
    out->op = (tempi_op){.layout = &out->layout,
                         .count = 1,
                         .mem = (void *)(uintptr_t)first,
                         .n = bytes,
                         .direction = TEMPI_PACK,
                         .method = TEMPI_METHOD_HOST};
}

void tempi_nest_begin(tempi_nest_walk *walk, const tempi_nest_shape *shape)
{
    walk->shape = shape;
    walk->at = shape->first;
    walk->left = shape->runs > 0 ? shape->run : 0;
    memset(walk->index, 0, sizeof walk->index);
}

static void next_run(tempi_nest_walk *walk)
{
    const tempi_nest_shape *shape = walk->shape;
    walk->at -= (uint64_t)shape->run; /* back to its first byte */
    for (int d = shape->ndims - 1; d >= 0; --d) {
        if (++walk->index[d] < shape->dims[d].count) {
            walk->at += (uint64_t)shape->dims[d].stride;
            walk->left = shape->run;
            return;
        }
        walk->at -= (uint64_t)((shape->dims[d].count - 1) * shape->dims[d].stride);
        walk->index[d] = 0;
    }
}

void tempi_nest_step(tempi_nest_walk *walk, int64_t n)
{
    walk->at += (uint64_t)n;
    walk->left -= n;
    if (walk->left == 0)
        next_run(walk);
}
