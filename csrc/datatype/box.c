/* datatype/box.c: arithmetic of one box. */
#include "datatype/layout.h"
#include <string.h>

int64_t tempi_box_span(const tempi_box *box)
{
    int64_t span = box->run;
    for (int d = 0; d < box->ndims; d++)
        span += (box->dims[d].count - 1) * box->dims[d].packed_stride;
    if (box->table)
        span += box->table->entries[box->run ? box->table->n - 1 : box->table->n].packed;
    return span;
}

int64_t tempi_box_runs(const tempi_box *box)
{
    int64_t runs = box->table ? box->table->n : 1;
    for (int d = 0; d < box->ndims; d++)
        runs *= box->dims[d].count;
    return runs;
}

bool tempi_box_bounds(const tempi_box *box, int64_t *lo, int64_t *hi)
{
    int64_t low = box->offset, high = box->offset;
    if (box->table) {
        const tempi_shared_table *table = tempi_table_shared(box->table);
        if (tempi_add64(low, table->lo, &low) || tempi_add64(high, table->hi, &high))
            return false;
    }
    for (int d = 0; d < box->ndims; d++) {
        int64_t reach;
        if (tempi_mul64(box->dims[d].count - 1, box->dims[d].stride, &reach))
            return false;
        if (reach < 0 ? tempi_add64(low, reach, &low) : tempi_add64(high, reach, &high))
            return false;
    }
    if (tempi_add64(high, box->run, &high))
        return false;
    *lo = low;
    *hi = high;
    return true;
}

bool tempi_box_same_shape(const tempi_box *a, const tempi_box *b)
{
    if (a->run != b->run || a->ndims != b->ndims || a->space != b->space)
        return false;
    if (memcmp(a->dims, b->dims, (size_t)a->ndims * sizeof(tempi_dim)) != 0)
        return false;
    return tempi_table_equal(a->table, b->table, a->run == 0);
}

void tempi_box_insert_dim(tempi_box *box, int at, tempi_dim dim)
{
    memmove(box->dims + at + 1, box->dims + at, (size_t)(box->ndims - at) * sizeof(tempi_dim));
    box->dims[at] = dim;
    box->ndims++;
}

void tempi_box_remove_dim(tempi_box *box, int at)
{
    box->ndims--;
    memmove(box->dims + at, box->dims + at + 1, (size_t)(box->ndims - at) * sizeof(tempi_dim));
    memset(box->dims + box->ndims, 0, sizeof(tempi_dim));
}

bool tempi_box_elide(tempi_box *box)
{
    bool changed = false;
    for (int d = box->ndims - 1; d >= 0; d--) {
        if (box->dims[d].count == 1) {
            tempi_box_remove_dim(box, d);
            changed = true;
        }
    }
    if (box->table && box->table->n == 1) { /* its entry is (0, 0) */
        if (box->run == 0)
            box->run = box->table->entries[1].packed;
        tempi_table_release(box->table);
        box->table = NULL;
        changed = true;
    }
    return changed;
}

bool tempi_box_fold(tempi_box *box)
{
    bool changed = false;
    while (box->ndims > (box->table ? tempi_box_level(box) : 0)) {
        const tempi_dim inner = box->dims[box->ndims - 1];
        if (inner.stride != box->run || inner.packed_stride != box->run)
            break;
        box->run *= inner.count;
        tempi_box_remove_dim(box, box->ndims - 1);
        changed = true;
    }
    return changed;
}

bool tempi_box_flatten(tempi_box *box)
{
    bool changed = false;
    for (int d = box->ndims - 2; d >= 0; d--) {
        const tempi_dim outer = box->dims[d], inner = box->dims[d + 1];
        int64_t whole; /* a table between the two makes the outer packed stride larger than this */
        if (outer.packed_stride != inner.count * inner.packed_stride ||
            tempi_mul64(inner.count, inner.stride, &whole) || outer.stride != whole)
            continue;
        box->dims[d + 1].count *= outer.count;
        tempi_box_remove_dim(box, d);
        changed = true;
    }
    return changed;
}
