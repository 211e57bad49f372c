/* datatype/irregular.c: hindexed, hindexed_block and struct (MPI-5.0 section 5.1.2). */
#include "datatype/passes.h"
#include <stdlib.h>

typedef struct range {
    int64_t least, most;
} range;

/* The blocks of an indexed type. */
typedef struct blocks {
    int64_t n;
    const int64_t *lengths; /* NULL: all are `length` */
    int64_t length;
    const int64_t *displacements;
    /* of the non-empty blocks: */
    int64_t used, elements;
    bool equal;        /* they have the same length */
    range first, last; /* where their first and last elements lie */
} blocks;

static int64_t block_length(const blocks *b, int64_t i)
{
    return b->lengths ? b->lengths[i] : b->length;
}

static inline void range_add(range *r, int64_t value)
{
    r->least = value < r->least ? value : r->least;
    r->most = value > r->most ? value : r->most;
}

/* Inline, to be compiled once for blocks of one length. All in registers: a type may have millions
 * of blocks. */
static inline int blocks_look(blocks *b, const int64_t *lengths, int64_t extent)
{
    const int64_t n = b->n, *at = b->displacements;
    int64_t used = 0, elements = 0, first = b->length;
    range begin = {INT64_MAX, INT64_MIN}, last = begin;
    bool equal = true, overflow = false;
    for (int64_t i = 0; i < n; i++) {
        const int64_t length = lengths ? lengths[i] : first;
        int64_t reach, end;
        if (length <= 0) {
            if (length < 0)
                return TEMPI_ERR_ARG;
            continue;
        }
        overflow |= tempi_add64(elements, length, &elements);
        overflow |= tempi_mul64(length - 1, extent, &reach);
        overflow |= tempi_add64(at[i], reach, &end);
        if (used++ == 0)
            first = length;
        equal &= length == first;
        range_add(&begin, at[i]);
        range_add(&last, end);
    }
    b->used = used;
    b->elements = elements;
    b->length = first;
    b->equal = equal;
    b->first = begin;
    b->last = last;
    return overflow ? TEMPI_ERR_OVERFLOW : TEMPI_OK;
}

/* Counts the non-empty blocks, checks them, and adds their size and bounds to the builder. */
static int blocks_measure(blocks *b, const tempi_layout *inner, tempi_builder *builder)
{
    int status = b->lengths ? blocks_look(b, b->lengths, inner->extent)
                            : blocks_look(b, NULL, inner->extent);
    if (status || b->used == 0)
        return status;
    const int64_t ends[] = {b->first.least, b->first.most, b->last.least, b->last.most};
    for (int i = 0; i < 4 && !status; i++)
        status = tempi_builder_bound(builder, inner, 1, ends[i]);
    return status ? status : tempi_builder_grow(builder, inner, b->elements);
}

/* A table with the position of each element; *start: that of the first. */
static tempi_shared_table *elements_table(const blocks *b, const tempi_layout *inner,
                                          tempi_entry *start)
{
    tempi_shared_table *table = tempi_table_new(b->elements);
    if (!table)
        return NULL;
    tempi_entry *entry = table->entries;
    int64_t packed = 0;
    for (int64_t i = 0; i < b->n; i++)
        for (int64_t j = 0; j < block_length(b, i); j++, packed += inner->size)
            *entry++ = (tempi_entry){b->displacements[i] + j * inner->extent, packed};
    *start = tempi_table_seal(table, false);
    return table;
}

/* The same with the position of each block, all of one length. Sealed as it is written. */
static tempi_shared_table *blocks_table(const blocks *b, const tempi_layout *inner,
                                        tempi_entry *start)
{
    tempi_shared_table *table = tempi_table_new(b->used);
    if (!table)
        return NULL;
    int64_t from = 0;
    while (block_length(b, from) == 0)
        ++from;
    const int64_t n = b->n, bytes = b->length * inner->size, *at = b->displacements,
                  *lengths = b->lengths, origin = at[from];
    tempi_entry *entry = table->entries;
    int64_t packed = 0;
    for (int64_t i = from; i < n; i++) {
        if (lengths && lengths[i] == 0)
            continue;
        *entry++ = (tempi_entry){at[i] - origin, packed};
        packed += bytes;
    }
    *entry = (tempi_entry){0, packed};
    table->lo = b->first.least - origin;
    table->hi = b->first.most - origin;
    *start = (tempi_entry){origin, 0};
    return table;
}

/* Appends every box of `inner` under one shared table. */
static int append_tabled(tempi_builder *builder, const blocks *b, const tempi_layout *inner,
                         int64_t packed)
{
    const bool single = !b->equal;
    tempi_builder piece; /* one block: its boxes get the table */
    tempi_builder_init(&piece);
    int status = tempi_builder_block(&piece, inner, single ? 1 : b->length, 0);
    tempi_entry start;
    tempi_shared_table *table = status   ? NULL
                                : single ? elements_table(b, inner, &start)
                                         : blocks_table(b, inner, &start);
    if (!status && !table)
        status = TEMPI_ERR_MEMORY;
    if (!status) {
        for (int64_t i = 0; i < piece.nboxes && !status; i++) {
            tempi_box box = piece.boxes[i];
            box.packed += packed;
            box.table = &table->pub;
            if (tempi_add64(box.offset, start.offset, &box.offset))
                status = TEMPI_ERR_OVERFLOW;
            else
                status = tempi_builder_append(builder, &box);
        }
        tempi_table_release(&table->pub);
    }
    tempi_builder_clear(&piece);
    return status;
}

/* Appends every run of every element as one table of variable runs: for the product of irregular
 * dimensions, or blocks of different lengths of a contiguous type (then `dense`: a block is one
 * run). */
static int append_runs(tempi_builder *builder, const blocks *b, const tempi_layout *inner,
                       int64_t packed, bool dense)
{
    const int64_t per_element = inner->runs;
    int64_t total = b->used, n = 0;
    if (!dense && tempi_mul64(b->elements, per_element, &total))
        return TEMPI_ERR_MEMORY;
    tempi_shared_table *table = tempi_table_new(total);
    tempi_run *space = malloc(2 * (size_t)per_element * sizeof *space);
    if (!table || !space) {
        free(space);
        if (table)
            tempi_table_release(&table->pub);
        return TEMPI_ERR_MEMORY;
    }
    const tempi_run *runs = tempi_runs_collect(inner->boxes, inner->nboxes, space,
                                               space + per_element, &n);
    tempi_entry *entry = table->entries;
    for (int64_t i = 0; i < b->n; i++) {
        const int64_t length = block_length(b, i);
        const int64_t pieces = dense ? length > 0 : length;
        for (int64_t j = 0; j < pieces; j++) {
            const int64_t at = b->displacements[i] + j * inner->extent;
            for (int64_t k = 0; k < n; k++)
                *entry++ = (tempi_entry){at + runs[k].offset, packed + runs[k].packed};
            packed += (dense ? length : 1) * inner->size;
        }
    }
    *entry = (tempi_entry){0, packed};
    const tempi_entry start = tempi_table_seal(table, true);
    free(space);
    return tempi_builder_table(builder, (tempi_box){.offset = start.offset, .packed = start.packed},
                               table);
}

/* Chooses the smaller form: boxes are larger than table entries but hold dimensions. */
static int append_indexed(tempi_builder *builder, blocks *b, const tempi_layout *inner)
{
    const int64_t packed = builder->size;
    int status = blocks_measure(b, inner, builder);
    if (status || b->used == 0 || inner->size == 0)
        return status;
    bool irregular = false;
    for (int32_t i = 0; i < inner->nboxes; i++)
        irregular = irregular || inner->boxes[i].table;
    const int64_t entry = (int64_t)sizeof(tempi_entry) * (irregular ? inner->runs : 1);
    const double as_boxes = (double)b->used * inner->nboxes * (double)sizeof(tempi_box);
    const double as_table = (double)entry *
                            (double)(b->equal && !irregular ? b->used : b->elements);
    if (b->used <= TEMPI_FEW_RUNS || (!inner->dense && as_boxes <= as_table)) {
        builder->size = packed;
        for (int64_t i = 0; i < b->n && !status; i++)
            status = tempi_builder_block(builder, inner, block_length(b, i), b->displacements[i]);
        return status;
    }
    if (irregular || (inner->dense && !b->equal))
        return append_runs(builder, b, inner, packed, inner->dense);
    return append_tabled(builder, b, inner, packed);
}

int tempi_layout_hindexed(int64_t n, const int64_t *blocklengths, const int64_t *displacements,
                          const tempi_layout *inner, tempi_layout **out)
{
    if (n < 0 || (n > 0 && (!blocklengths || !displacements)) || !inner || !out)
        return TEMPI_ERR_ARG;
    tempi_builder builder;
    tempi_builder_init(&builder);
    blocks b = {.n = n, .lengths = blocklengths, .displacements = displacements};
    const int status = append_indexed(&builder, &b, inner);
    return tempi_builder_layout(status, &builder, out);
}

int tempi_layout_hindexed_block(int64_t n, int64_t blocklength, const int64_t *displacements,
                                const tempi_layout *inner, tempi_layout **out)
{
    if (n < 0 || blocklength < 0 || (n > 0 && !displacements) || !inner || !out)
        return TEMPI_ERR_ARG;
    tempi_builder builder;
    tempi_builder_init(&builder);
    blocks b = {.n = n, .length = blocklength, .displacements = displacements};
    const int status = append_indexed(&builder, &b, inner);
    return tempi_builder_layout(status, &builder, out);
}

/* ---- struct ---------------------------------------------------------------------------------- */

typedef struct members {
    int64_t n;
    const int64_t *lengths, *displacements;
    const tempi_layout *const *inners;
} members;

static bool member_empty(const members *m, int64_t i)
{
    return m->lengths[i] == 0 || m->inners[i]->size == 0;
}

static int64_t member_runs(const members *m, int64_t i)
{
    int64_t runs;
    if (m->inners[i]->dense)
        return 1;
    return tempi_mul64(m->lengths[i], m->inners[i]->runs, &runs) ? INT64_MAX : runs;
}

/* Whether a member is smaller as plain runs than as boxes. */
static bool member_small(const members *m, int64_t i)
{
    const int64_t room = m->inners[i]->nboxes * (int64_t)(sizeof(tempi_box) / sizeof(tempi_entry));
    return member_runs(m, i) <= room;
}

/* First index after the members from i on that have one type. */
static int64_t uniform_segment(const members *m, int64_t i)
{
    const tempi_layout *inner = m->inners[i];
    for (; i < m->n && tempi_layout_equal(m->inners[i], inner); i++) {
    }
    return i;
}

/* Whether so many members from i on have one type that a table over its boxes is smaller. */
static bool member_crowd(const members *m, int64_t i)
{
    enum { CROWD = 64 };
    return !m->inners[i]->dense && i + CROWD <= m->n &&
           tempi_layout_equal(m->inners[i + CROWD - 1], m->inners[i]) &&
           uniform_segment(m, i) - i >= CROWD;
}

/* First index after the members from i on that are empty or small; *runs: their number of runs. */
static int64_t small_segment(const members *m, int64_t i, int64_t *runs)
{
    *runs = 0;
    for (; i < m->n && (member_empty(m, i) || (member_small(m, i) && !member_crowd(m, i))); i++)
        *runs += member_empty(m, i) ? 0 : member_runs(m, i);
    return i;
}

static int append_boxes(tempi_builder *builder, const members *m, int64_t from, int64_t to)
{
    int status = TEMPI_OK;
    for (int64_t i = from; i < to && !status; i++)
        status = tempi_builder_block(builder, m->inners[i], m->lengths[i], m->displacements[i]);
    return status;
}

/* The runs of the last few types of small members: a struct of many members has few types. */
typedef struct run_cache {
    const tempi_layout *type;
    tempi_run *space; /* owns the memory of runs */
    const tempi_run *runs;
    int64_t n;
} run_cache;
enum { CACHED_TYPES = 16 };

static int cache_runs(run_cache *slot, const tempi_layout *type)
{
    if (slot->type && tempi_layout_equal(slot->type, type))
        return TEMPI_OK;
    free(slot->space);
    slot->type = NULL;
    slot->space = malloc(2 * (size_t)type->runs * sizeof *slot->space);
    if (!slot->space)
        return TEMPI_ERR_MEMORY;
    slot->runs = tempi_runs_collect(type->boxes, type->nboxes, slot->space,
                                    slot->space + type->runs, &slot->n);
    slot->type = type;
    return TEMPI_OK;
}

/* A gapless sequence of runs under construction. */
typedef struct sequence {
    tempi_entry *first, *next;
} sequence;

/* Appends a run, or extends the last one if it continues it. */
static inline void sequence_push(sequence *s, int64_t packed, int64_t offset)
{
    if (s->next > s->first && offset - s->next[-1].offset == packed - s->next[-1].packed)
        return;
    *s->next++ = (tempi_entry){offset, packed};
}

/* Appends the runs of one member, the first at packed position `packed`. */
static int member_write(const members *m, int64_t i, int64_t packed, run_cache *cache, sequence *s)
{
    const tempi_layout *inner = m->inners[i];
    const int64_t at = m->displacements[i];
    if (inner->dense) {
        sequence_push(s, packed, at + inner->boxes[0].offset);
        return TEMPI_OK;
    }
    run_cache *slot =
        &cache[(uint64_t)(inner->size ^ inner->extent >> 3 ^ inner->runs) % CACHED_TYPES];
    const int status = cache_runs(slot, inner);
    if (status)
        return status;
    for (int64_t j = 0; j < m->lengths[i]; j++)
        for (int64_t k = 0; k < slot->n; k++)
            sequence_push(s, packed + j * inner->size + slot->runs[k].packed,
                          at + j * inner->extent + slot->runs[k].offset);
    return TEMPI_OK;
}

static int members_write(tempi_builder *builder, const members *m, int64_t from, int64_t to,
                         sequence *s)
{
    run_cache cache[CACHED_TYPES] = {{0}};
    int status = TEMPI_OK;
    for (int64_t i = from; i < to && !status; i++) {
        const int64_t packed = builder->size;
        status = tempi_builder_bound(builder, m->inners[i], m->lengths[i], m->displacements[i]);
        if (!status)
            status = tempi_builder_grow(builder, m->inners[i], m->lengths[i]);
        if (!status && !member_empty(m, i))
            status = member_write(m, i, packed, cache, s);
    }
    for (int i = 0; i < CACHED_TYPES; i++)
        free(cache[i].space);
    return status;
}

static int append_members_as_runs(tempi_builder *builder, const members *m, int64_t from,
                                  int64_t to, int64_t total)
{
    tempi_shared_table *table = tempi_table_new(total);
    if (!table)
        return TEMPI_ERR_MEMORY;
    sequence s = {table->entries, table->entries};
    const int status = members_write(builder, m, from, to, &s);
    const int64_t n = s.next - s.first;
    *s.next = (tempi_entry){0, builder->size};
    if (status) {
        tempi_table_release(&table->pub);
        return status;
    }
    const tempi_box around = {0};
    if (n <= TEMPI_FEW_RUNS) {
        const int appended = tempi_runs_table(s.first, n, &around, builder);
        tempi_table_release(&table->pub);
        return appended;
    }
    table = tempi_table_shrink(table, n);
    const tempi_entry start = tempi_table_seal(table, true);
    return tempi_builder_table(builder, (tempi_box){.offset = start.offset, .packed = start.packed},
                               table);
}

/* Segments of small members become one table of runs, many members of one type an indexed type, all
 * others their own boxes. */
static int append_members(tempi_builder *builder, const members *m)
{
    int status = TEMPI_OK;
    for (int64_t i = 0; i < m->n && !status;) {
        int64_t runs, to = small_segment(m, i, &runs);
        if (to > i) {
            status = runs > TEMPI_FEW_RUNS ? append_members_as_runs(builder, m, i, to, runs)
                                           : append_boxes(builder, m, i, to);
        } else {
            to = uniform_segment(m, i);
            blocks b = {
                .n = to - i, .lengths = m->lengths + i, .displacements = m->displacements + i};
            status = append_indexed(builder, &b, m->inners[i]);
        }
        i = to;
    }
    return status;
}

int tempi_layout_struct(int64_t n, const int64_t *blocklengths, const int64_t *displacements,
                        const tempi_layout *const *inners, tempi_layout **out)
{
    if (n < 0 || (n > 0 && (!blocklengths || !displacements || !inners)) || !out)
        return TEMPI_ERR_ARG;
    for (int64_t i = 0; i < n; i++)
        if (blocklengths[i] < 0 || !inners[i])
            return TEMPI_ERR_ARG;
    tempi_builder builder;
    tempi_builder_init(&builder);
    const members m = {n, blocklengths, displacements, inners};
    const int status = append_members(&builder, &m);
    return tempi_builder_layout(status, &builder, out);
}
