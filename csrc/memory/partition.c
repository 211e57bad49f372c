/* memory/partition.c: finds the memory of each box of a message.
 *
 * 1. Every box gets the message's count as its outermost dimension.
 * 2. A box is in one memory if both its ends and the indices between are, as far as the driver
 *    must be queried: an allocation that CUDA knows has known bounds; pageable memory is queried
 *    once a page, and not more often than MAX_QUERIES in all.
 * 3. Else it is cut along its outermost dimension, or its table, into segments that are.
 *
 * Managed memory counts as its device's: kernels of the program may be writing it. */
#include "memory/partition.h"
#include "cuda/device.h"
#include "datatype/layout.h"

enum {
    MAX_QUERIES = 256,
    PAGE = 4096,
    HOST = -1,
    SEVERAL = -2,
    UNKNOWN = -3,
    DEVICES = TEMPI_CUDA_DEVICES
};

typedef struct partitioner {
    uintptr_t mem;
    int queries;
    tempi_memory known; /* the last allocation found */
    uintptr_t host;     /* the last pageable page found; 1: none */
    tempi_parts *parts;
    bool failed;
} partitioner;

/* ---- one address ----------------------------------------------------------------------------- */

static int owner_of(const tempi_memory *memory)
{
    switch (memory->kind) {
    case TEMPI_MEMORY_HOST:
    case TEMPI_MEMORY_PINNED: return HOST;
    case TEMPI_MEMORY_MANAGED: return memory->device < 0 ? 0 : memory->device;
    case TEMPI_MEMORY_DEVICE: return memory->device;
    default: return UNKNOWN;
    }
}

static bool covers(const tempi_memory *memory, uintptr_t from, uintptr_t end)
{
    return memory->base != 0 && from >= memory->base &&
           end - memory->base <= (uintptr_t)memory->size;
}

/* HOST, a device, or UNKNOWN. */
static int owner_at(partitioner *l, uintptr_t address)
{
    if (address / PAGE == l->host / PAGE)
        return HOST;
    if (!covers(&l->known, address, address + 1)) {
        tempi_memory found;
        ++l->queries;
        if (tempi_memory_describe((const void *)address, &found) == TEMPI_MEMORY_HOST) {
            l->host = address;
            return HOST;
        }
        l->known = found;
    }
    return owner_of(&l->known);
}

/* ---- one box --------------------------------------------------------------------------------- */

/* Whether the box's outermost loop is its table. */
static bool table_first(const tempi_box *box)
{
    return box->table && tempi_box_level(box) == 0;
}

static int64_t indices_of(const tempi_box *box)
{
    if (table_first(box))
        return box->table->n;
    return box->ndims > 0 ? box->dims[0].count : 1;
}

/* The box at index i of its outermost loop. */
static tempi_box inside(const tempi_box *box, int64_t i)
{
    tempi_box inner = *box;
    if (table_first(box)) {
        const tempi_entry *e = &box->table->entries[i];
        inner.offset += e->offset;
        inner.packed += e->packed;
        inner.run = box->run ? box->run : e[1].packed - e[0].packed;
        inner.table = NULL;
        return inner;
    }
    inner.offset += i * box->dims[0].stride;
    inner.packed += i * box->dims[0].packed_stride;
    tempi_box_remove_dim(&inner, 0);
    return inner;
}

/* HOST or a device if the whole box is there; else SEVERAL or UNKNOWN. */
static int owner_of_box(partitioner *l, const tempi_box *box)
{
    int64_t low, high;
    if (!tempi_box_bounds(box, &low, &high))
        return UNKNOWN;
    const uintptr_t from = l->mem + (uintptr_t)low, end = l->mem + (uintptr_t)high;
    const int owner = owner_at(l, from);
    if (owner == UNKNOWN || covers(&l->known, from, end))
        return owner;
    const int last = owner_at(l, end - 1);
    if (last != owner)
        return last == UNKNOWN ? UNKNOWN : SEVERAL;
    const int64_t n = box->ndims > 0 || box->table ? indices_of(box) : 0;
    for (int64_t i = 0; i < n && l->queries < MAX_QUERIES; ++i) {
        const tempi_box inner = inside(box, i);
        const int one = owner_of_box(l, &inner);
        if (one != owner)
            return one == UNKNOWN ? UNKNOWN : SEVERAL;
    }
    return owner;
}

/* ---- assignment to parts --------------------------------------------------------------------- */

static void assign(partitioner *l, int owner, const tempi_box *box)
{
    tempi_parts *parts = l->parts;
    int p = 0;
    if (owner == UNKNOWN || owner >= DEVICES) {
        l->failed = true;
        return;
    }
    while (p < parts->n && parts->part[p].device != owner)
        ++p;
    if (p == parts->n) {
        parts->n++;
        parts->part[p].device = owner;
    }
    l->failed |= !tempi_part_add(&parts->part[p], box);
}

/* Adds indices [from, end) of the box's outermost loop (of several indices) as a separate box. */
static void assign_segment(partitioner *l, int owner, const tempi_box *box, int64_t from,
                           int64_t end)
{
    tempi_box segment = inside(box, from);
    if (end - from == 1) {
        assign(l, owner, &segment);
    } else if (!table_first(box)) {
        const tempi_dim dim = {end - from, box->dims[0].stride, box->dims[0].packed_stride};
        tempi_box_insert_dim(&segment, 0, dim);
        assign(l, owner, &segment);
    } else {
        const bool variable = box->run == 0;
        tempi_shared_table *table = tempi_table_new(end - from);
        if (!table) {
            l->failed = true;
            return;
        }
        for (int64_t i = from; i < end + (variable ? 1 : 0); ++i)
            table->entries[i - from] = box->table->entries[i];
        tempi_table_seal(table, variable);
        segment.run = box->run;
        segment.table = &table->pub;
        assign(l, owner, &segment);
        tempi_table_release(&table->pub);
    }
}

static void cut(partitioner *l, const tempi_box *box);

static void partition_box(partitioner *l, const tempi_box *box)
{
    const int owner = owner_of_box(l, box);
    if (owner == SEVERAL)
        cut(l, box);
    else
        assign(l, owner, box);
}

static void cut(partitioner *l, const tempi_box *box)
{
    if (box->ndims == 0 && !box->table) { /* one run across memories cannot be copied correctly */
        l->failed = true;
        return;
    }
    const int64_t n = indices_of(box);
    int64_t from = 0;
    int owner = SEVERAL; /* of the segment that begins there; SEVERAL: none yet */
    for (int64_t i = 0; i < n && !l->failed; ++i) {
        const tempi_box inner = inside(box, i);
        const int one = owner_of_box(l, &inner);
        if (owner != SEVERAL && one != owner)
            assign_segment(l, owner, box, from, i);
        if (one != owner)
            from = i;
        owner = one;
        if (one == SEVERAL)
            cut(l, &inner);
    }
    if (owner != SEVERAL && !l->failed)
        assign_segment(l, owner, box, from, n);
}

/* Partitions the box repeated by the message's count, element by element if the box has no free
 * dimension. */
static void partition_elements(partitioner *l, const tempi_layout *layout, const tempi_box *box,
                               int64_t count)
{
    tempi_box all = *box;
    if (count == 1 || box->ndims < TEMPI_MAX_DIMS) {
        if (count > 1)
            tempi_box_insert_dim(&all, 0, (tempi_dim){count, layout->extent, layout->size});
        partition_box(l, &all);
        return;
    }
    for (int64_t i = 0; i < count && !l->failed;
         ++i, all.offset += layout->extent, all.packed += layout->size)
        partition_box(l, &all);
}

static bool is_empty(const tempi_box *box)
{
    return tempi_box_runs(box) == 0 || (box->run == 0 && !box->table);
}

/* ---- the whole message ----------------------------------------------------------------------- */

static void bounds_of(tempi_part *part, int64_t size)
{
    tempi_layout *layout = &part->layout;
    layout->size = layout->extent = size;
    layout->true_lb = INT64_MAX;
    layout->true_ub = INT64_MIN;
    for (int b = 0; b < layout->nboxes; ++b) {
        int64_t low = 0, high = 0;
        (void)tempi_box_bounds(&layout->boxes[b], &low, &high);
        layout->true_lb = low < layout->true_lb ? low : layout->true_lb;
        layout->true_ub = high > layout->true_ub ? high : layout->true_ub;
    }
}

static tempi_partition verdict(partitioner *l, int64_t size, tempi_memory *one, tempi_parts **parts)
{
    if (l->failed || l->parts->n == 0)
        return TEMPI_PARTITION_UNKNOWN;
    if (l->parts->n == 1) {
        const int owner = l->parts->part[0].device;
        *one = (tempi_memory){.kind = owner == HOST ? TEMPI_MEMORY_HOST : TEMPI_MEMORY_DEVICE,
                              .device = owner};
        return TEMPI_PARTITION_ONE;
    }
    for (int p = 0; p < l->parts->n; ++p) {
        tempi_part *part = &l->parts->part[p];
        part->method = part->device == HOST ? TEMPI_METHOD_HOST : TEMPI_METHOD_ONE_SHOT;
        bounds_of(part, size);
    }
    *parts = l->parts;
    l->parts = NULL;
    return TEMPI_PARTITION_MIXED;
}

tempi_partition tempi_memory_partition(const tempi_layout *layout, int64_t count, const void *mem,
                                       tempi_memory *one, tempi_parts **parts)
{
    partitioner l = {.mem = (uintptr_t)mem, .host = 1, .parts = tempi_parts_new(1 + DEVICES)};
    if (!l.parts)
        return TEMPI_PARTITION_UNKNOWN;
    for (int b = 0; b < layout->nboxes && !l.failed; ++b)
        if (!is_empty(&layout->boxes[b]))
            partition_elements(&l, layout, &layout->boxes[b], count);
    const tempi_partition found = verdict(&l, layout->size * count, one, parts);
    tempi_parts_free(l.parts);
    return found;
}

/* By the standard only absolute addresses (mem == NULL: MPI_BOTTOM) may leave one "sequential
 * storage" (MPI-5.0 section 5.1.12). Programs also reach one array from another's address, so if a
 * type's span far exceeds its bytes, its other end is queried too. */
bool tempi_memory_may_partition(const tempi_layout *layout, int64_t count, const void *mem,
                                const tempi_memory *lowest)
{
    enum { SPARSE = 32, NEAR = 1 << 16 };
    const uintptr_t from = (uintptr_t)mem + (uintptr_t)layout->true_lb;
    const int64_t reach = layout->extent > 0 ? (count - 1) * layout->extent : 0;
    const int64_t span = reach + (layout->true_ub - layout->true_lb);
    if (lowest->base != 0)
        return layout->extent >= 0 && !covers(lowest, from, from + (uintptr_t)span);
    if (lowest->kind != TEMPI_MEMORY_HOST || !tempi_cuda_up())
        return false;
    const bool single = layout->nboxes == 1 && layout->boxes[0].ndims == 0 &&
                        !layout->boxes[0].table;
    if (!mem)
        return !single;
    if (single || span < NEAR || span / SPARSE < layout->size * count)
        return false;
    return tempi_memory_of((const void *)(from + (uintptr_t)span - 1)) != TEMPI_MEMORY_HOST;
}
