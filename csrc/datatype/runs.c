/* datatype/runs.c: lists the runs of boxes. */
#include "datatype/layout_builder.h"
#include <string.h>

typedef struct traversal {
    const tempi_box *box;
    int level; /* of the table */
    tempi_run *next;
} traversal;

static void traverse_dims(traversal *w, int d, int64_t offset, int64_t packed);

static void traverse_table(traversal *w, int d, int64_t offset, int64_t packed)
{
    const tempi_table *table = w->box->table;
    const tempi_entry *e = table->entries;
    for (int64_t i = 0; i < table->n; i++) {
        if (w->box->run == 0)
            *w->next++ = (tempi_run){packed + e[i].packed, offset + e[i].offset,
                                     e[i + 1].packed - e[i].packed};
        else
            traverse_dims(w, d + 1, offset + e[i].offset, packed + e[i].packed);
    }
}

/* Traverses level d of the nest, in which the table is one level. */
static void traverse_dims(traversal *w, int d, int64_t offset, int64_t packed)
{
    const int levels = w->box->ndims + (w->box->table ? 1 : 0);
    if (d == levels) {
        *w->next++ = (tempi_run){packed, offset, w->box->run};
        return;
    }
    if (d == w->level && w->box->table) {
        traverse_table(w, d, offset, packed);
        return;
    }
    const tempi_dim dim = w->box->dims[w->box->table && d > w->level ? d - 1 : d];
    for (int64_t i = 0; i < dim.count; i++)
        traverse_dims(w, d + 1, offset + i * dim.stride, packed + i * dim.packed_stride);
}

/* First index after the ascending segment that starts at i. */
static int64_t segment_end(const tempi_run *runs, int64_t i, int64_t n)
{
    for (i++; i < n && runs[i - 1].packed <= runs[i].packed; i++) {
    }
    return i;
}

/* One round of a natural merge sort, from `from` to `to`; true: `to` is sorted. */
static bool merge_round(const tempi_run *from, tempi_run *to, int64_t n)
{
    int64_t at = 0, segments = 0;
    while (at < n) {
        int64_t i = at, k = at;
        const int64_t middle = segment_end(from, at, n);
        const int64_t end = middle < n ? segment_end(from, middle, n) : n;
        int64_t j = middle;
        while (i < middle || j < end) {
            const bool left = i < middle && (j == end || from[i].packed <= from[j].packed);
            to[k++] = left ? from[i++] : from[j++];
        }
        at = end;
        segments++;
    }
    return segments <= 1;
}

tempi_run *tempi_runs_collect(const tempi_box *boxes, int64_t nboxes, tempi_run *runs,
                              tempi_run *scratch, int64_t *n)
{
    traversal w = {.next = runs};
    for (int64_t i = 0; i < nboxes; i++) {
        w.box = &boxes[i];
        w.level = tempi_box_level(w.box);
        traverse_dims(&w, 0, w.box->offset, w.box->packed);
    }
    *n = w.next - runs;
    if (segment_end(runs, 0, *n) >= *n)
        return runs;
    while (!merge_round(runs, scratch, *n)) {
        tempi_run *other = runs;
        runs = scratch;
        scratch = other;
    }
    return scratch;
}

int64_t tempi_runs_merge(tempi_run *runs, int64_t n)
{
    int64_t kept = 0;
    for (int64_t i = 1; i < n; i++) {
        tempi_run *last = &runs[kept];
        if (last->offset + last->bytes == runs[i].offset &&
            last->packed + last->bytes == runs[i].packed)
            last->bytes += runs[i].bytes;
        else
            runs[++kept] = runs[i];
    }
    return n > 0 ? kept + 1 : 0;
}
