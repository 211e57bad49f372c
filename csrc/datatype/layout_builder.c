/* datatype/layout_builder.c: boxes under construction, and their conversion to a layout. */
#include "datatype/layout_builder.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

void tempi_builder_init(tempi_builder *builder)
{
    builder->size = builder->lb = builder->ub = builder->low = builder->high = 0;
    builder->bounded = false;
    builder->nboxes = 0;
    builder->capacity = TEMPI_BUILDER_OWN;
    builder->boxes = builder->own;
}

void tempi_builder_empty(tempi_builder *builder)
{
    for (int64_t i = 0; i < builder->nboxes; i++)
        tempi_table_release(builder->boxes[i].table);
    builder->nboxes = 0;
}

void tempi_builder_clear(tempi_builder *builder)
{
    tempi_builder_empty(builder);
    if (builder->boxes != builder->own)
        free(builder->boxes);
    builder->boxes = builder->own;
    builder->capacity = TEMPI_BUILDER_OWN;
}

void tempi_builder_swap_boxes(tempi_builder *a, tempi_builder *b)
{
    tempi_builder old;
    memcpy(&old, a, sizeof old);
    memcpy(a->own, b->own, sizeof a->own);
    memcpy(b->own, old.own, sizeof b->own);
    a->boxes = b->boxes == b->own ? a->own : b->boxes;
    b->boxes = old.boxes == a->own ? b->own : old.boxes;
    a->nboxes = b->nboxes;
    b->nboxes = old.nboxes;
    a->capacity = b->capacity;
    b->capacity = old.capacity;
}

int tempi_builder_reserve(tempi_builder *builder, int64_t more)
{
    if (more <= builder->capacity - builder->nboxes)
        return TEMPI_OK;
    if (more > INT_MAX - builder->nboxes) /* nboxes is an int32_t in the layout */
        return TEMPI_ERR_UNSUPPORTED;
    int64_t capacity = builder->capacity * 2;
    if (capacity < builder->nboxes + more)
        capacity = builder->nboxes + more;
    tempi_box *old = builder->boxes == builder->own ? NULL : builder->boxes;
    tempi_box *boxes = realloc(old, (size_t)capacity * sizeof *boxes);
    if (!boxes)
        return TEMPI_ERR_MEMORY;
    if (!old)
        memcpy(boxes, builder->own, (size_t)builder->nboxes * sizeof *boxes);
    builder->boxes = boxes;
    builder->capacity = capacity;
    return TEMPI_OK;
}

int tempi_builder_append(tempi_builder *builder, const tempi_box *box)
{
    const int status = tempi_builder_reserve(builder, 1);
    if (status)
        return status;
    builder->boxes[builder->nboxes++] = *box;
    tempi_table_retain(box->table);
    return TEMPI_OK;
}

/* Replaces the boxes from `first` on, which cover a gapless piece of the packed stream, by their
 * runs: used when variable runs cannot take another dimension. */
static int builder_flatten(tempi_builder *builder, int64_t first)
{
    int64_t total = 0, n;
    for (int64_t i = first; i < builder->nboxes; i++)
        total += tempi_box_runs(&builder->boxes[i]);
    if (total > INT64_MAX / (2 * (int64_t)sizeof(tempi_run)))
        return TEMPI_ERR_MEMORY;
    tempi_run *space = malloc(2 * (size_t)total * sizeof *space);
    if (!space)
        return TEMPI_ERR_MEMORY;
    tempi_run *runs = tempi_runs_collect(builder->boxes + first, builder->nboxes - first, space,
                                         space + total, &n);
    n = tempi_runs_merge(runs, n);
    while (builder->nboxes > first)
        tempi_table_release(builder->boxes[--builder->nboxes].table);
    const int status = tempi_builder_runs(builder, runs, n);
    free(space);
    return status;
}

/* Turns the two adjacent dimensions with the smallest product of a box without a table, or a table
 * and its smaller neighbour, into one table. */
static int box_spill(tempi_box *box)
{
    const tempi_entry start = {0, 0}, *old = &start;
    int at = 0; /* the dims [at, at + take) go into the table */
    int take = 1;
    bool outer = false; /* the dimension lies outside the old table */
    int64_t n = 1;
    if (box->table) {
        const int level = tempi_box_level(box);
        outer = level > 0 &&
                (level == box->ndims || box->dims[level - 1].count <= box->dims[level].count);
        at = outer ? level - 1 : level;
        old = box->table->entries;
        n = box->table->n;
    } else {
        for (int d = 1; d + 1 < box->ndims; d++)
            if (box->dims[d].count * box->dims[d + 1].count <
                box->dims[at].count * box->dims[at + 1].count)
                at = d;
        take = 2;
    }
    const tempi_dim a = box->dims[at];
    const tempi_dim b = take == 2 ? box->dims[at + 1] : (tempi_dim){1, 0, 0};
    int64_t total;
    if (tempi_mul64(n, a.count, &total) || tempi_mul64(total, b.count, &total))
        return TEMPI_ERR_MEMORY;
    tempi_shared_table *table = tempi_table_new(total);
    if (!table)
        return TEMPI_ERR_MEMORY;
    const int64_t slow = outer ? a.count : n, fast = outer ? n : a.count;
    tempi_entry *entry = table->entries;
    for (int64_t i = 0; i < slow; i++)
        for (int64_t j = 0; j < fast; j++)
            for (int64_t k = 0; k < b.count; k++, entry++) {
                const int64_t step = outer ? i : j;
                const tempi_entry *base = &old[outer ? j : i];
                entry->offset = base->offset + step * a.stride + k * b.stride;
                entry->packed = base->packed + step * a.packed_stride + k * b.packed_stride;
            }
    tempi_table_seal(table, false);
    tempi_table_release(box->table);
    box->table = &table->pub;
    for (int d = 0; d < take; d++)
        tempi_box_remove_dim(box, at);
    return TEMPI_OK;
}

/* Frees, in every box from `first` on, one dimension beside the message's count. */
static int builder_make_place(tempi_builder *builder, int64_t first)
{
    for (int64_t i = first; i < builder->nboxes; i++) {
        tempi_box *box = &builder->boxes[i];
        while (box->ndims >= TEMPI_MAX_DIMS - 1) {
            while (tempi_box_fold(box) || tempi_box_flatten(box)) {
            }
            if (box->ndims < TEMPI_MAX_DIMS - 1)
                break;
            if (box->run == 0) /* a table of variable runs cannot hold gaps in the packed stream */
                return builder_flatten(builder, first);
            const int status = box_spill(box);
            if (status)
                return status;
        }
    }
    return TEMPI_OK;
}

int tempi_builder_repeat(tempi_builder *builder, int64_t first, int64_t count, int64_t stride,
                         int64_t packed_stride)
{
    if (count == 1)
        return TEMPI_OK;
    const int status = builder_make_place(builder, first);
    if (status)
        return status;
    for (int64_t i = first; i < builder->nboxes; i++)
        tempi_box_insert_dim(&builder->boxes[i], 0, (tempi_dim){count, stride, packed_stride});
    return TEMPI_OK;
}

int tempi_builder_grow(tempi_builder *builder, const tempi_layout *inner, int64_t blocklength)
{
    int64_t bytes;
    if (tempi_mul64(blocklength, inner->size, &bytes) || tempi_add64(builder->size, bytes, &bytes))
        return TEMPI_ERR_OVERFLOW;
    builder->size = bytes;
    return TEMPI_OK;
}

int tempi_builder_bound(tempi_builder *builder, const tempi_layout *inner, int64_t blocklength,
                        int64_t offset)
{
    if (blocklength == 0 || (inner->size == 0 && inner->lb == 0 && inner->extent == 0))
        return TEMPI_OK; /* an empty type map has no bounds */
    int64_t lb, ub, reach, low, high, unused;
    if (tempi_add64(offset, inner->lb, &lb) || tempi_add64(lb, inner->extent, &ub) ||
        tempi_add64(offset, inner->true_lb, &low) || tempi_add64(offset, inner->true_ub, &high) ||
        tempi_mul64(blocklength - 1, inner->extent, &reach))
        return TEMPI_ERR_OVERFLOW;
    int64_t *ends[] = {&lb, &low, &ub, &high};
    for (int i = 0; i < 2; i++)
        if (tempi_add64(*ends[reach < 0 ? i : i + 2], reach, ends[reach < 0 ? i : i + 2]))
            return TEMPI_ERR_OVERFLOW;
    low = lb < low ? lb : low;
    high = ub > high ? ub : high;
    builder->lb = !builder->bounded || lb < builder->lb ? lb : builder->lb;
    builder->ub = !builder->bounded || ub > builder->ub ? ub : builder->ub;
    builder->low = !builder->bounded || low < builder->low ? low : builder->low;
    builder->high = !builder->bounded || high > builder->high ? high : builder->high;
    builder->bounded = true;
    return __builtin_sub_overflow(builder->high, builder->low, &unused) ? TEMPI_ERR_OVERFLOW
                                                                        : TEMPI_OK;
}

int tempi_builder_block(tempi_builder *builder, const tempi_layout *inner, int64_t blocklength,
                        int64_t offset)
{
    int status = tempi_builder_bound(builder, inner, blocklength, offset);
    if (status || blocklength == 0 || inner->size == 0)
        return status;
    const int64_t packed = builder->size, first = builder->nboxes;
    status = tempi_builder_grow(builder, inner, blocklength);
    for (int32_t i = 0; i < inner->nboxes && !status; i++) {
        tempi_box box = inner->boxes[i];
        if (tempi_add64(box.offset, offset, &box.offset))
            return TEMPI_ERR_OVERFLOW;
        box.packed += packed;
        status = tempi_builder_append(builder, &box);
    }
    if (status)
        return status;
    return tempi_builder_repeat(builder, first, blocklength, inner->extent, inner->size);
}

int tempi_builder_table(tempi_builder *builder, tempi_box box, tempi_shared_table *table)
{
    box.table = &table->pub;
    const int status = tempi_builder_append(builder, &box);
    tempi_table_release(&table->pub);
    return status;
}

int tempi_builder_runs(tempi_builder *builder, const tempi_run *runs, int64_t n)
{
    tempi_box box = {0};
    if (n <= TEMPI_FEW_RUNS) {
        int status = TEMPI_OK;
        for (int64_t i = 0; i < n && !status; i++) {
            box.offset = runs[i].offset;
            box.packed = runs[i].packed;
            box.run = runs[i].bytes;
            status = tempi_builder_append(builder, &box);
        }
        return status;
    }
    tempi_shared_table *table = tempi_table_new(n);
    if (!table)
        return TEMPI_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++)
        table->entries[i] = (tempi_entry){runs[i].offset, runs[i].packed};
    table->entries[n] = (tempi_entry){0, runs[n - 1].packed + runs[n - 1].bytes};
    const tempi_entry first = tempi_table_seal(table, true);
    box.offset = first.offset;
    box.packed = first.packed;
    return tempi_builder_table(builder, box, table);
}

int tempi_builder_view(const tempi_builder *builder, tempi_layout *view)
{
    tempi_layout v = {.size = builder->size,
                      .lb = builder->lb,
                      .nboxes = (int32_t)builder->nboxes,
                      .boxes = builder->boxes};
    int64_t unused;
    if (__builtin_sub_overflow(builder->ub, builder->lb, &v.extent))
        return TEMPI_ERR_OVERFLOW;
    for (int64_t i = 0; i < builder->nboxes; i++) {
        const tempi_box *box = &builder->boxes[i];
        int64_t lo, hi;
        if (!tempi_box_bounds(box, &lo, &hi))
            return TEMPI_ERR_OVERFLOW;
        v.true_lb = i == 0 || lo < v.true_lb ? lo : v.true_lb;
        v.true_ub = i == 0 || hi > v.true_ub ? hi : v.true_ub;
        v.runs += tempi_box_runs(box);
    }
    if (__builtin_sub_overflow(v.true_ub, v.true_lb,
                               &unused)) /* so that any two offsets can be subtracted */
        return TEMPI_ERR_OVERFLOW;
    v.dense = builder->nboxes == 1 && builder->boxes[0].run == v.size && v.extent == v.size;
    *view = v;
    return TEMPI_OK;
}

int tempi_builder_finish(tempi_builder *builder, tempi_layout_object **out)
{
    tempi_layout view;
    const int status = tempi_builder_view(builder, &view);
    if (status)
        return status;
    const size_t bytes = (size_t)builder->nboxes * sizeof(tempi_box);
    tempi_layout_object *object = malloc(sizeof *object + bytes);
    if (!object)
        return TEMPI_ERR_MEMORY;
    memcpy(object->boxes, builder->boxes, bytes);
    object->pub = view;
    object->pub.boxes = object->boxes;
    object->pub.cache = object->plans;
    atomic_init(&object->refs, 0);
    object->hash = 0;
    object->next = NULL;
    atomic_init(&object->plans[0], NULL);
    atomic_init(&object->plans[1], NULL);
    builder->nboxes = 0; /* the references moved */
    *out = object;
    return TEMPI_OK;
}

int tempi_builder_layout(int status, tempi_builder *builder, tempi_layout **out)
{
    tempi_layout_object *object;
    if (!status)
        status = tempi_builder_finish(builder, &object);
    tempi_builder_clear(builder);
    if (!status)
        *out = &object->pub;
    return status;
}
