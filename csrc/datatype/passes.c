/* datatype/passes.c: the passes that need only the boxes' own numbers.
 *
 * elide    removes a dimension of count 1, and a table of one entry. Their offset is in the box's
 *          own offset.
 * fold     joins the innermost dimension to the run if stride == packed_stride == run (dense).
 * flatten  turns dimensions (c1, s1, p1) over (c2, s2, p2) into (c1 * c2, s2, p2) if
 *          s1 == c2 * s2 and p1 == c2 * p2.
 * merge    joins two boxes in a row that differ in one place: the second continues the first's
 *          runs in memory and in the packed stream, or continues one of its dimensions.
 * join     turns boxes A0 B0 A1 B1 ... An Bn, each Ai the same shape as A0 and all of them (Bs
 *          likewise) at one spacing in memory and in the packed stream, into A and B with one
 *          dimension more. Any period up to TEMPI_PERIOD_MAX.
 *
 * No pass moves a dimension because of its memory stride: the packed order is the type map's. */
#include "datatype/passes.h"
#include <string.h>

static int each_box(tempi_builder *builder, bool *changed, bool (*pass)(tempi_box *))
{
    for (int64_t i = 0; i < builder->nboxes; i++)
        *changed = pass(&builder->boxes[i]) || *changed;
    return TEMPI_OK;
}

int tempi_pass_elide(tempi_builder *builder, bool *changed)
{
    return each_box(builder, changed, tempi_box_elide);
}

int tempi_pass_fold(tempi_builder *builder, bool *changed)
{
    return each_box(builder, changed, tempi_box_fold);
}

int tempi_pass_flatten(tempi_builder *builder, bool *changed)
{
    return each_box(builder, changed, tempi_box_flatten);
}

/* b's runs begin where a's end. */
static bool continues_run(const tempi_box *a, const tempi_box *b)
{
    if (a->run == 0 || b->run == 0 || a->ndims != b->ndims)
        return false;
    if (b->offset - a->offset != a->run || b->packed - a->packed != a->run)
        return false;
    return memcmp(a->dims, b->dims, (size_t)a->ndims * sizeof(tempi_dim)) == 0 &&
           tempi_table_equal(a->table, b->table, false);
}

/* The only dimension in which the counts of a and b differ, if b continues a in it; -1: none. */
static int continues_dim(const tempi_box *a, const tempi_box *b)
{
    if (a->run != b->run || a->ndims != b->ndims ||
        !tempi_table_equal(a->table, b->table, a->run == 0))
        return -1;
    int found = -1;
    for (int d = 0; d < a->ndims; d++) {
        const tempi_dim x = a->dims[d], y = b->dims[d];
        if (x.stride != y.stride || x.packed_stride != y.packed_stride)
            return -1;
        if (b->packed - a->packed == x.count * x.packed_stride) {
            int64_t whole;
            if (tempi_mul64(x.count, x.stride, &whole) || b->offset - a->offset != whole)
                return -1;
            found = d;
        } else if (x.count != y.count) {
            return -1;
        }
    }
    for (int d = 0; d < a->ndims; d++)
        if (d != found && a->dims[d].count != b->dims[d].count)
            return -1;
    return found;
}

/* The dimension of a that b, having one dimension less, extends by one step; -1: none. */
static int continues_step(const tempi_box *a, const tempi_box *b)
{
    if (a->run != b->run || a->ndims != b->ndims + 1)
        return -1;
    for (int d = 0; d < a->ndims; d++) {
        const tempi_dim x = a->dims[d];
        int64_t whole;
        if (b->packed - a->packed != x.count * x.packed_stride ||
            tempi_mul64(x.count, x.stride, &whole) || b->offset - a->offset != whole)
            continue;
        tempi_box less = *a;
        tempi_box_remove_dim(&less, d);
        if (tempi_box_same_shape(&less, b))
            return d;
    }
    return -1;
}

bool tempi_box_nest_dim(tempi_box *box, tempi_dim dim)
{
    if (box->ndims >= TEMPI_MAX_DIMS - 1)
        return false;
    int at = 0;
    while (at < box->ndims && box->dims[at].packed_stride > dim.packed_stride)
        at++;
    const int level = tempi_box_level(box);
    int64_t inside = box->run; /* packed span of everything inside the new dimension */
    for (int d = at; d < box->ndims; d++)
        inside += (box->dims[d].count - 1) * box->dims[d].packed_stride;
    const int64_t reach = (dim.count - 1) * dim.packed_stride;
    if (box->table) {
        const tempi_entry *e = box->table->entries;
        const int64_t last = e[box->run ? box->table->n - 1 : box->table->n].packed;
        /* Outside the table if larger than the whole table, else inside every gap of it. */
        if (dim.packed_stride > last) {
            if (at > level)
                return false;
            inside += last;
        } else {
            if (at < level || box->run == 0)
                return false;
            for (int64_t i = 1; i < box->table->n; i++)
                if (e[i].packed - e[i - 1].packed < inside + reach)
                    return false;
        }
    }
    if (dim.packed_stride < inside || (at > 0 && box->dims[at - 1].packed_stride < inside + reach))
        return false;
    tempi_box_insert_dim(box, at, dim);
    return true;
}

/* Lengthens dimension d if the packed spans still nest. */
static bool lengthen(tempi_box *box, int d, int64_t count)
{
    tempi_box longer = *box;
    tempi_dim dim = box->dims[d];
    tempi_box_remove_dim(&longer, d);
    dim.count += count;
    if (!tempi_box_nest_dim(&longer, dim))
        return false;
    *box = longer;
    return true;
}

static bool merge_into(tempi_box *a, const tempi_box *b)
{
    int d;
    if (a->space != b->space)
        return false;
    if (continues_run(a, b)) {
        a->run += b->run;
        return true;
    }
    if ((d = continues_dim(a, b)) >= 0)
        return lengthen(a, d, b->dims[d].count);
    if ((d = continues_step(a, b)) >= 0)
        return lengthen(a, d, 1);
    return false;
}

int tempi_pass_merge(tempi_builder *builder, bool *changed)
{
    int64_t kept = 0;
    for (int64_t i = 1; i < builder->nboxes; i++) {
        if (merge_into(&builder->boxes[kept], &builder->boxes[i])) {
            tempi_table_release(builder->boxes[i].table);
            *changed = true;
        } else if (++kept != i) {
            builder->boxes[kept] = builder->boxes[i];
        }
    }
    builder->nboxes = builder->nboxes ? kept + 1 : 0;
    return TEMPI_OK;
}

/* Number of consecutive occurrences (at least one) of the p boxes from `i` on, at the spacing
 * `step`. */
static int64_t join_count(const tempi_builder *builder, int64_t i, int64_t p, tempi_dim *step)
{
    const tempi_box *boxes = builder->boxes;
    if (i + 2 * p > builder->nboxes ||
        __builtin_sub_overflow(boxes[i + p].offset, boxes[i].offset, &step->stride))
        return 1;
    step->packed_stride = boxes[i + p].packed - boxes[i].packed;
    for (int64_t j = i + p; j < builder->nboxes; j++) {
        const tempi_box *a = &boxes[j - p], *b = &boxes[j];
        if (b->packed - a->packed != step->packed_stride || b->offset - a->offset != step->stride ||
            !tempi_box_same_shape(a, b))
            return (j - i) / p;
    }
    return (builder->nboxes - i) / p;
}

/* Adds the dimension to the p boxes from `i` on, to all or none. */
static bool join_apply(tempi_builder *builder, int64_t i, int64_t p, tempi_dim step)
{
    tempi_box joined[TEMPI_PERIOD_MAX];
    for (int64_t k = 0; k < p; k++) {
        joined[k] = builder->boxes[i + k];
        if (!tempi_box_nest_dim(&joined[k], step))
            return false;
    }
    memcpy(builder->boxes + i, joined, (size_t)p * sizeof *joined);
    return true;
}

/* The shortest period that repeats from `i` on; 0: none. */
static int64_t join_at(tempi_builder *builder, int64_t i, int64_t *count)
{
    for (int64_t p = 1; p <= TEMPI_PERIOD_MAX && i + 2 * p <= builder->nboxes; p++) {
        tempi_dim step = {0};
        step.count = *count = join_count(builder, i, p, &step);
        if (*count >= 2 && join_apply(builder, i, p, step))
            return p;
    }
    return 0;
}

int tempi_pass_join(tempi_builder *builder, bool *changed)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < builder->nboxes;) {
        int64_t count = 1;
        int64_t p = join_at(builder, i, &count);
        *changed = *changed || p > 0;
        if (p == 0)
            p = count = 1;
        memmove(builder->boxes + kept, builder->boxes + i, (size_t)p * sizeof *builder->boxes);
        kept += p;
        for (int64_t j = i + p; j < i + p * count; j++)
            tempi_table_release(builder->boxes[j].table);
        i += p * count;
    }
    builder->nboxes = kept;
    return TEMPI_OK;
}
