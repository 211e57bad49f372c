/* pack.c: tempi_pack and tempi_unpack on host memory.
 *
 * 1. Every box becomes a nest: the message's count is its outermost dimension.
 * 2. Whole messages are copied as they are; a fragment is cut out of every box that it meets.
 * 3. A layout of several boxes traverses the memory once per box. Where each traversal would fetch
 *    the memory again from a distant level, the message is done in pieces of the packed stream.
 */
#include "pack/nest.h"

#include <stddef.h>

enum {
    PIECE_BYTES = 32 << 10, /* of packed data: with its memory side well inside a level 2 cache */
};

static int box_is_empty(const tempi_box *box)
{
    for (int d = 0; d < box->ndims; d++)
        if (box->dims[d].count < 1)
            return 1;
    return box->table ? box->table->n < 1 : box->run < 1;
}

/* Makes the nest of a box that is not empty in `count` elements. Its packed position within the
 * message's stream is box->packed + nest->bias. */
static void nest_init(tempi_nest *nest, const tempi_layout *layout, const tempi_box *box,
                      int64_t count, int direction)
{
    int nd = 0;
    if (count > 1)
        nest->dims[nd++] = (tempi_dim){count, layout->extent, layout->size};
    for (int d = 0; d < box->ndims; d++)
        if (box->dims[d].count > 1)
            nest->dims[nd++] = box->dims[d];
    nest->ndims = nd;
    nest->run = box->run;
    nest->direction = direction;
    nest->entries = NULL;
    nest->nentries = 0;
    nest->bias = 0;
    nest->depth = 0;
    const tempi_table *table = box->table;
    if (!table)
        return;
    nest->entries = table->entries;
    nest->nentries = table->n;
    nest->bias = table->entries[0].packed;
    nest->depth = nd;
    if (box->run) {
        /* The spans nest, so a dim inside the table has a stride below one entry's span. */
        const int64_t reach = table->entries[table->n - 1].packed - nest->bias;
        while (nest->depth > 0 && nest->dims[nest->depth - 1].packed_stride <= reach)
            nest->depth--;
    }
}

/* Copies a box's bytes in [first, first + n) of the stream of `count` elements; packed is the
 * position of the byte at `first`. */
static void copy_box(const tempi_layout *layout, const tempi_box *box, int64_t count, char *mem,
                     int64_t first, int64_t n, char *packed, int direction)
{
    if (box_is_empty(box))
        return;
    const int whole = first == 0 && n == layout->size * count;
    if (whole && !box->table) {
        const tempi_dim elements = {count, layout->extent, layout->size};
        tempi_box_copy(box, &elements, mem + box->offset, packed + box->packed, direction);
        return;
    }
    tempi_nest nest;
    nest_init(&nest, layout, box, count, direction);
    const int64_t start = box->packed + nest.bias - first;
    nest.mem = mem + box->offset;
    nest.packed = packed + start;
    if (whole)
        tempi_nest_copy(&nest);
    else
        tempi_nest_copy_range(&nest, -start, n - start);
}

static void copy_piece(const tempi_layout *layout, int64_t count, char *mem, int64_t first,
                       int64_t n, char *packed, int direction)
{
    for (int b = 0; b < layout->nboxes; b++)
        copy_box(layout, &layout->boxes[b], count, mem, first, n, packed, direction);
}

/* The packed stream's period: a piece that starts and ends at a multiple of it cuts no index of a
 * box. 0: unknown. */
static int64_t stream_period(const tempi_layout *layout, int64_t count)
{
    if (count > 1)
        return layout->size;
    const tempi_box *box = layout->boxes;
    if (box->ndims == 0)
        return 0;
    for (int b = 1; b < layout->nboxes; b++)
        if (box[b].ndims == 0 || box[b].dims[0].packed_stride != box->dims[0].packed_stride)
            return 0;
    return box->dims[0].packed_stride;
}

static void copy_message(const tempi_layout *layout, int64_t count, char *mem, int64_t first,
                         int64_t n, char *packed, int direction)
{
    const int64_t period = layout->nboxes > 1 && n > PIECE_BYTES ? stream_period(layout, count) : 0;
    if (period == 0 || period > PIECE_BYTES / 2) {
        copy_piece(layout, count, mem, first, n, packed, direction);
        return;
    }
    const int64_t step = PIECE_BYTES / period * period;
    const int64_t end = first + n;
    while (first < end) {
        int64_t stop = (first / step + 1) * step;
        if (stop > end)
            stop = end;
        copy_piece(layout, count, mem, first, stop - first, packed, direction);
        packed += stop - first;
        first = stop;
    }
}

/* Copies one whole element by the plan that is cached with the layout. */
static inline bool copy_cached(const tempi_layout *layout, int64_t count, char *mem, int64_t n,
                               char *packed, int direction)
{
    return count == 1 && n == layout->size && tempi_layout_copy(layout, mem, packed, direction);
}

void tempi_pack(const tempi_layout *layout, int64_t count, const void *base, int64_t first,
                int64_t n, void *packed)
{
    if (n <= 0 || count <= 0 ||
        copy_cached(layout, count, (char *)(uintptr_t)base, n, packed, TEMPI_PACK))
        return;
    if (layout->dense)
        tempi_kernels_get()->copy(packed, (const char *)base + layout->true_lb + first, n);
    else
        copy_message(layout, count, (char *)(uintptr_t)base, first, n, packed, TEMPI_PACK);
}

void tempi_unpack(const tempi_layout *layout, int64_t count, const void *packed, int64_t first,
                  int64_t n, void *base)
{
    if (n <= 0 || count <= 0 ||
        copy_cached(layout, count, base, n, (char *)(uintptr_t)packed, TEMPI_UNPACK))
        return;
    if (layout->dense)
        tempi_kernels_get()->copy((char *)base + layout->true_lb + first, packed, n);
    else
        copy_message(layout, count, base, first, n, (char *)(uintptr_t)packed, TEMPI_UNPACK);
}
