#include "pack/parts.h"
#include "datatype/layout.h"

#include <stdlib.h>

/* ---- life ------------------------------------------------------------------------------------ */

tempi_parts *tempi_parts_new(int most)
{
    return calloc(1, sizeof(tempi_parts) + (size_t)most * sizeof(tempi_part));
}

static tempi_box *boxes_of(const tempi_part *part)
{
    return (tempi_box *)(uintptr_t)part->layout.boxes;
}

void tempi_parts_delete(tempi_parts *parts)
{
    for (int i = 0; i < parts->n; ++i) {
        for (int b = 0; b < parts->part[i].layout.nboxes; ++b)
            tempi_table_release(parts->part[i].layout.boxes[b].table);
        free(boxes_of(&parts->part[i]));
    }
    free(parts);
}

bool tempi_part_add(tempi_part *part, const tempi_box *box)
{
    tempi_layout *layout = &part->layout;
    if (layout->nboxes == part->most) {
        const int most = part->most ? 2 * part->most : 4;
        tempi_box *larger = realloc(boxes_of(part), (size_t)most * sizeof *larger);
        if (!larger)
            return false;
        layout->boxes = larger;
        part->most = most;
    }
    tempi_table_retain(box->table);
    boxes_of(part)[layout->nboxes++] = *box;
    layout->runs += tempi_box_runs(box);
    return true;
}

void tempi_parts_set_method(tempi_parts *parts, int32_t method)
{
    for (int i = 0; i < parts->n; ++i)
        if (parts->part[i].method != TEMPI_METHOD_HOST)
            parts->part[i].method = method;
}

static int64_t box_bytes(const tempi_box *box)
{
    const int64_t runs = tempi_box_runs(box);
    if (box->run || !box->table || box->table->n == 0)
        return runs * box->run;
    return runs / box->table->n * box->table->entries[box->table->n].packed;
}

/* A box with gaps in the packed stream counts as all its runs: its inside is not examined. */
int64_t tempi_part_bytes(const tempi_part *part, int64_t *segments)
{
    int64_t bytes = 0, end = -1;
    *segments = 0;
    for (int b = 0; b < part->layout.nboxes; ++b) {
        const tempi_box *box = &part->layout.boxes[b];
        const int64_t own = box_bytes(box),
                      start = box->packed + (box->table ? box->table->entries[0].packed : 0);
        const bool whole = own == tempi_box_span(box);
        *segments += whole ? start != end : tempi_box_runs(box);
        end = whole ? start + own : -1;
        bytes += own;
    }
    return bytes;
}

bool tempi_part_is_run(const tempi_part *part)
{
    const tempi_box *box = part->layout.boxes;
    return part->layout.nboxes == 1 && box->ndims == 0 && !box->table;
}

/* ---- as operations --------------------------------------------------------------------------- */

int tempi_parts_count(const tempi_op *ops, int n)
{
    int all = 0;
    for (int i = 0; i < n; ++i)
        all += ops[i].method == TEMPI_METHOD_MIXED ? ops[i].parts->n : 1;
    return all;
}

static tempi_op part_op(const tempi_op *whole, const tempi_part *part)
{
    tempi_op op = *whole;
    op.layout = &part->layout;
    op.count = 1;
    op.method = part->method;
    op.device = part->device;
    op.partial = true;
    op.parts = NULL;
    return op;
}

void tempi_parts_expand(const tempi_op *ops, int n, tempi_op *out)
{
    for (int i = 0; i < n; ++i) {
        if (ops[i].method != TEMPI_METHOD_MIXED)
            *out++ = ops[i];
        else
            for (int p = 0; p < ops[i].parts->n; ++p)
                *out++ = part_op(&ops[i], &ops[i].parts->part[p]);
    }
}

/* ---- the segments of a part ------------------------------------------------------------------ */

typedef struct traversal {
    int64_t low, high; /* the range that is visited */
    int64_t first, n;  /* not yet passed to the visitor */
    tempi_segment visit;
    void *context;
} traversal;

static int traverse_flush(traversal *w)
{
    const int64_t first = w->first > w->low ? w->first : w->low;
    const int64_t end = w->first + w->n < w->high ? w->first + w->n : w->high;
    return end > first ? w->visit(w->context, first, end - first) : TEMPI_OK;
}

static int traverse_run(traversal *w, int64_t first, int64_t n)
{
    if (w->n > 0 && w->first + w->n == first) {
        w->n += n;
        return TEMPI_OK;
    }
    const int status = traverse_flush(w);
    w->first = first;
    w->n = n;
    return status;
}

/* Visits the dims from d on; a table lies between dims[level - 1] and dims[level]. */
static int traverse_box(traversal *w, const tempi_box *box, int d, int level, int64_t at)
{
    int status = TEMPI_OK;
    if (level == d && box->table) {
        const tempi_entry *e = box->table->entries;
        for (int64_t i = 0; i < box->table->n && status == TEMPI_OK; ++i)
            status = box->run ? traverse_box(w, box, d, -1, at + e[i].packed)
                              : traverse_run(w, at + e[i].packed, e[i + 1].packed - e[i].packed);
        return status;
    }
    if (d == box->ndims)
        return traverse_run(w, at, box->run);
    for (int64_t i = 0; i < box->dims[d].count && status == TEMPI_OK; ++i)
        status = traverse_box(w, box, d + 1, level, at + i * box->dims[d].packed_stride);
    return status;
}

int tempi_segments_visit(const tempi_layout *layout, int64_t first, int64_t n, tempi_segment visit,
                         void *context)
{
    traversal w = {.low = first, .high = first + n, .visit = visit, .context = context};
    int status = TEMPI_OK;
    for (int b = 0; b < layout->nboxes && status == TEMPI_OK; ++b) {
        const tempi_box *box = &layout->boxes[b];
        status = traverse_box(&w, box, 0, box->table ? tempi_box_level(box) : -1, box->packed);
    }
    return status == TEMPI_OK ? traverse_flush(&w) : status;
}
