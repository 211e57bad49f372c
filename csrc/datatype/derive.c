/* datatype/derive.c: the boxes of a type of few runs, from the runs alone.
 *
 * 1. List all runs in packed order and merge runs that continue one another. This sequence depends
 *    on nothing but the type map: equal sequences get equal boxes.
 * 2. A perfect nest or a pattern repeated throughout (regular.c): done.
 * 3. Else round by round, from the front: p items in a row that repeat c times at one spacing
 *    become one item, a loop. The shortest repeating p wins. Two single runs are always "evenly
 *    spaced", so a loop over one run needs three of them.
 * 4. Loops become boxes; the single runs between them become boxes if few, else tables. If that
 *    gives more than 8 boxes and one per 16 runs, the type is irregular: one table of everything.
 */
#include "datatype/passes.h"
#include <stdlib.h>
#include <string.h>

/* A shape is a run (count 0) or a loop over `children` items. Equal shapes share one number. */
typedef struct shape {
    int64_t run;
    tempi_dim loop;
    int32_t first, children; /* in the pool */
} shape;

typedef struct item {
    int64_t offset, packed;
    int32_t shape;
} item;

typedef struct deriver {
    int32_t nitems, nshapes, npool;
    item items[TEMPI_DERIVE_RUNS];
    shape shapes[2 * TEMPI_DERIVE_RUNS];
    item pool[TEMPI_DERIVE_RUNS]; /* children, relative to their loop */
    tempi_entry entries[TEMPI_DERIVE_RUNS + 1];
} deriver;

static int32_t shape_number(deriver *d, const shape *s)
{
    for (int32_t i = 0; i < d->nshapes; i++) {
        const shape *other = &d->shapes[i];
        if (other->run == s->run && memcmp(&other->loop, &s->loop, sizeof s->loop) == 0 &&
            other->children == s->children &&
            memcmp(d->pool + other->first, d->pool + s->first,
                   (size_t)s->children * sizeof(item)) == 0)
            return i;
    }
    d->shapes[d->nshapes] = *s;
    return d->nshapes++;
}

/* The shape of a loop of p items from i on; its children go to the pool unless the shape exists. */
static int32_t loop_shape(deriver *d, int32_t i, int32_t p, tempi_dim loop)
{
    const int32_t first = d->npool, known = d->nshapes;
    for (int32_t k = 0; k < p; k++) {
        item *child = &d->pool[d->npool++];
        memset(child, 0, sizeof *child); /* compared as bytes, padding included */
        child->offset = d->items[i + k].offset - d->items[i].offset;
        child->packed = d->items[i + k].packed - d->items[i].packed;
        child->shape = d->items[i + k].shape;
    }
    const shape s = {0, loop, first, p};
    const int32_t number = shape_number(d, &s);
    if (d->nshapes == known)
        d->npool = first;
    return number;
}

static int32_t repeat_count(const deriver *d, int32_t i, int32_t p, tempi_dim *loop)
{
    const item *it = d->items;
    loop->stride = it[i + p].offset - it[i].offset;
    loop->packed_stride = it[i + p].packed - it[i].packed;
    int32_t j = i + p;
    while (j < d->nitems && it[j].shape == it[j - p].shape &&
           it[j].offset - it[j - p].offset == loop->stride &&
           it[j].packed - it[j - p].packed == loop->packed_stride)
        j++;
    return (j - i) / p;
}

/* Length of the shortest pattern that repeats from item i on; 0: none. */
static int32_t repeat_at(const deriver *d, int32_t i, tempi_dim *loop)
{
    for (int32_t p = 1; p <= TEMPI_PERIOD_MAX && i + 2 * p <= d->nitems; p++) {
        const int32_t count = repeat_count(d, i, p, loop);
        const bool single = p == 1 && d->shapes[d->items[i].shape].children == 0;
        loop->count = count;
        if (count >= (single ? 3 : 2))
            return p;
    }
    return 0;
}

static bool derive_round(deriver *d)
{
    int32_t kept = 0;
    bool changed = false;
    for (int32_t i = 0; i < d->nitems;) {
        tempi_dim loop;
        item merged = d->items[i];
        const int32_t p = repeat_at(d, i, &loop);
        if (p) {
            merged.shape = loop_shape(d, i, p, loop);
            i += p * (int32_t)loop.count;
            changed = true;
        } else {
            i++;
        }
        d->items[kept++] = merged;
    }
    d->nitems = kept;
    return changed;
}

/* Appends the boxes of one item; `box` holds the position and dims of the loops around it. */
static int emit_item(const deriver *d, int32_t number, tempi_box box, tempi_builder *out)
{
    const shape *s = &d->shapes[number];
    if (s->children == 0) {
        box.run = s->run;
        return tempi_builder_append(out, &box);
    }
    if (box.ndims >= TEMPI_MAX_DIMS - 1)
        return TEMPI_ERR_UNSUPPORTED; /* the caller makes a table instead */
    box.dims[box.ndims++] = s->loop;
    int status = TEMPI_OK;
    for (int32_t k = 0; k < s->children && !status; k++) {
        const item *child = &d->pool[s->first + k];
        tempi_box inner = box;
        inner.offset += child->offset;
        inner.packed += child->packed;
        status = emit_item(d, child->shape, inner, out);
    }
    return status;
}

/* Appends n single runs from item i on, closed by the next item or the end of the type. */
static int emit_loose(deriver *d, int32_t i, int32_t n, int64_t end, const tempi_box *around,
                      tempi_builder *out)
{
    for (int32_t k = 0; k < n; k++)
        d->entries[k] = (tempi_entry){d->items[i + k].offset, d->items[i + k].packed};
    d->entries[n] = (tempi_entry){0, end};
    return tempi_runs_table(d->entries, n, around, out);
}

static int emit(deriver *d, int64_t size, const tempi_box *around, tempi_builder *out)
{
    int status = TEMPI_OK;
    for (int32_t i = 0; i < d->nitems && !status;) {
        int32_t n = 0;
        while (i + n < d->nitems && d->shapes[d->items[i + n].shape].children == 0)
            n++;
        if (n) {
            status = emit_loose(d, i, n, i + n < d->nitems ? d->items[i + n].packed : size, around,
                                out);
        } else {
            tempi_box box = *around;
            box.table = NULL;
            box.offset += d->items[i].offset;
            box.packed += d->items[i].packed;
            status = emit_item(d, d->items[i].shape, box, out);
            n = 1;
        }
        i += n;
    }
    return status;
}

static int derive_loops(deriver *d, const tempi_entry *runs, int32_t n, const tempi_box *around,
                        tempi_builder *out)
{
    d->nitems = n;
    d->nshapes = d->npool = 0;
    for (int32_t i = 0; i < n; i++) {
        const shape run = {.run = runs[i + 1].packed - runs[i].packed};
        d->items[i] = (item){runs[i].offset, runs[i].packed, shape_number(d, &run)};
    }
    while (derive_round(d)) {
    }
    return emit(d, runs[n].packed, around, out);
}

/* *found: the loops are few enough. Not on the stack, which is small in threads of some programs.
 */
static int loops_boxes(const tempi_entry *runs, int64_t n, const tempi_box *around,
                       tempi_builder *out, bool *found)
{
    tempi_builder loops;
    deriver *d = malloc(sizeof *d);
    *found = false;
    if (!d)
        return TEMPI_ERR_MEMORY;
    tempi_builder_init(&loops);
    int status = derive_loops(d, runs, (int32_t)n, around, &loops);
    free(d);
    *found = status == TEMPI_OK && loops.nboxes <= 8 + n / 16;
    for (int64_t i = 0; i < loops.nboxes && *found && !status; i++)
        status = tempi_builder_append(out, &loops.boxes[i]);
    tempi_builder_clear(&loops);
    return status;
}

int tempi_runs_boxes(const tempi_entry *runs, int64_t n, const tempi_box *around,
                     tempi_builder *out)
{
    bool found;
    int status = tempi_runs_resolve(runs, n, around, out, &found);
    if (status || found)
        return status;
    if (n <= TEMPI_DERIVE_RUNS) {
        status = loops_boxes(runs, n, around, out, &found);
        if (found || (status && status != TEMPI_ERR_UNSUPPORTED))
            return status;
    }
    return tempi_runs_table(runs, n, around, out);
}

/* The merged runs of the builder and a closing entry, to be freed; *n is 0 if there are too many.
 */
static int derive_runs(const tempi_builder *builder, tempi_entry **entries, int64_t *n)
{
    int64_t listed = 0;
    *n = 0;
    for (int64_t i = 0; i < builder->nboxes && listed <= TEMPI_DERIVE_LISTED; i++)
        listed += tempi_box_runs(&builder->boxes[i]);
    if (listed > TEMPI_DERIVE_LISTED)
        return TEMPI_OK;
    tempi_run *space = malloc(2 * (size_t)listed * sizeof *space);
    if (!space)
        return TEMPI_ERR_MEMORY;
    tempi_run *runs = tempi_runs_collect(builder->boxes, builder->nboxes, space, space + listed, n);
    *n = tempi_runs_merge(runs, *n);
    if (*n > TEMPI_DERIVE_RUNS)
        *n = 0;
    tempi_entry *made = *n ? malloc(((size_t)*n + 1) * sizeof *made) : NULL;
    for (int64_t i = 0; made && i < *n; i++)
        made[i] = (tempi_entry){runs[i].offset, runs[i].packed};
    if (made)
        made[*n] = (tempi_entry){0, builder->size};
    free(space);
    *entries = made;
    return *n && !made ? TEMPI_ERR_MEMORY : TEMPI_OK;
}

int tempi_pass_derive(tempi_builder *builder, bool *changed)
{
    if (builder->nboxes == 0 || (builder->nboxes == 1 && !builder->boxes[0].table))
        return TEMPI_OK; /* one box without a table is a folded nest, hence canonical already */
    if (builder->nboxes == 1 && builder->boxes[0].ndims == 0 &&
        tempi_table_settled(builder->boxes[0].table))
        return TEMPI_OK; /* the pass "table" has just done this */
    tempi_entry *runs = NULL;
    int64_t n;
    int status = derive_runs(builder, &runs, &n);
    if (status || n == 0)
        return status;
    const tempi_box around = {0};
    tempi_builder out;
    tempi_builder_init(&out);
    status = tempi_runs_boxes(runs, n, &around, &out);
    free(runs);
    if (!status) {
        *changed = out.nboxes != builder->nboxes;
        for (int64_t i = 0; i < out.nboxes && !*changed; i++) {
            const tempi_box *a = &out.boxes[i], *b = &builder->boxes[i];
            *changed = a->offset != b->offset || a->packed != b->packed ||
                       !tempi_box_same_shape(a, b);
        }
        tempi_builder_swap_boxes(builder, &out);
    }
    tempi_builder_clear(&out);
    return status;
}
