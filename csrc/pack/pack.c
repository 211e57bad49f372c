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
    /* For non-temporal stores shorter runs are packed into whole lines first, in pieces that stay
     * in a level 1 cache. */
    LINE = 64,
    LINES_RUN = 8 * LINE,
    LINES_BYTES = 8 << 10,
};

/* A message that is copied, or some of its bytes. */
typedef struct message {
    const tempi_layout *layout;
    int64_t count;
    char *mem;
    int direction;
    bool nontemporal;
    int64_t whole; /* as in tempi_loop */
} message;

static int box_is_empty(const tempi_box *box)
{
    for (int d = 0; d < box->ndims; d++)
        if (box->dims[d].count < 1)
            return 1;
    return box->table ? box->table->n < 1 : box->run < 1;
}

/* Makes the nest of a box that is not empty. Its packed position within the message's stream is
 * box->packed + nest->bias. */
static void nest_init(tempi_nest *nest, const message *m, const tempi_box *box)
{
    int nd = 0;
    if (m->count > 1)
        nest->dims[nd++] = (tempi_dim){m->count, m->layout->extent, m->layout->size};
    for (int d = 0; d < box->ndims; d++)
        if (box->dims[d].count > 1)
            nest->dims[nd++] = box->dims[d];
    nest->ndims = nd;
    nest->run = box->run;
    nest->mem = m->mem + box->offset;
    nest->direction = m->direction;
    nest->nontemporal = m->nontemporal;
    nest->whole = m->whole;
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

/* Copies a box's bytes in [first, first + n) of the stream; packed is the position of the byte at
 * `first`. */
static void copy_box(const message *m, const tempi_box *box, int64_t first, int64_t n, char *packed)
{
    if (box_is_empty(box))
        return;
    const int whole = first == 0 && n == m->layout->size * m->count;
    if (whole && !box->table && !m->nontemporal) {
        const tempi_dim elements = {m->count, m->layout->extent, m->layout->size};
        tempi_box_copy(box, &elements, m->mem + box->offset, packed + box->packed, m->direction);
        return;
    }
    tempi_nest nest;
    nest_init(&nest, m, box);
    const int64_t start = box->packed + nest.bias - first;
    nest.packed = packed + start;
    if (whole)
        tempi_nest_copy(&nest);
    else
        tempi_nest_copy_range(&nest, -start, n - start);
}

static void copy_piece(const message *m, int64_t first, int64_t n, char *packed)
{
    for (int b = 0; b < m->layout->nboxes; b++)
        copy_box(m, &m->layout->boxes[b], first, n, packed);
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

static void copy_message(const message *m, int64_t first, int64_t n, char *packed)
{
    const int64_t period = m->layout->nboxes > 1 && n > PIECE_BYTES
                               ? stream_period(m->layout, m->count)
                               : 0;
    if (period == 0 || period > PIECE_BYTES / 2) {
        copy_piece(m, first, n, packed);
        return;
    }
    const int64_t step = PIECE_BYTES / period * period;
    const int64_t end = first + n;
    while (first < end) {
        int64_t stop = (first / step + 1) * step;
        if (stop > end)
            stop = end;
        copy_piece(m, first, stop - first, packed);
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

/* Bytes of the message, which has more than none. */
static void copy_bytes(const message *m, int64_t first, int64_t n, char *packed)
{
    const tempi_kernels *kernels = tempi_kernels_get();
    if (!m->layout->dense) {
        copy_message(m, first, n, packed);
        return;
    }
    char *mem = m->mem + m->layout->true_lb + first;
    const bool packs = m->direction == TEMPI_PACK;
    (m->nontemporal ? kernels->copy_nontemporal : kernels->copy)(packs ? packed : mem,
                                                                 packs ? mem : packed, n);
}

void tempi_pack(const tempi_layout *layout, int64_t count, const void *base, int64_t first,
                int64_t n, void *packed)
{
    char *mem = (char *)(uintptr_t)base;
    if (n <= 0 || count <= 0 || copy_cached(layout, count, mem, n, packed, TEMPI_PACK))
        return;
    copy_bytes(&(message){layout, count, mem, TEMPI_PACK, false, layout->size * count}, first, n,
               packed);
}

void tempi_unpack(const tempi_layout *layout, int64_t count, const void *packed, int64_t first,
                  int64_t n, void *base)
{
    char *from = (char *)(uintptr_t)packed;
    if (n <= 0 || count <= 0 || copy_cached(layout, count, base, n, from, TEMPI_UNPACK))
        return;
    copy_bytes(&(message){layout, count, base, TEMPI_UNPACK, false, layout->size * count}, first, n,
               from);
}

void tempi_copy_nontemporal(void *to, const void *from, int64_t n)
{
    if (n > 0)
        tempi_kernels_get()->copy_nontemporal(to, from, n);
}

/* Whether runs are, but for their ends, whole lines of packed memory, of which the message begins
 * at `start`. */
static bool has_lines(const tempi_layout *layout, const char *start)
{
    const tempi_box *box = layout->boxes;
    return layout->dense ||
           (layout->nboxes == 1 && !box->table &&
            (box->run >= LINES_RUN || (box->run % LINE == 0 && (uintptr_t)start % LINE == 0)));
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void tempi_pack_nontemporal(const tempi_layout *layout, int64_t count, const void *base,
                            int64_t first, int64_t n, void *packed)
{
    if (n <= 0 || count <= 0)
        return;
    message m = {layout, count, (char *)(uintptr_t)base, TEMPI_PACK, true, layout->size * count};
    char *to = packed;
    if (has_lines(layout, to - first)) {
        copy_bytes(&m, first, n, to);
        return;
    }
    _Alignas(LINE) char lines[LINES_BYTES];
    m.nontemporal = false;
    m.whole = smaller(m.whole, tempi_cache_bytes() / 2); /* else `lines` might pass the caches */
    for (int64_t done = 0, part; done < n; done += part) {
        part = smaller(n - done, LINES_BYTES);
        copy_bytes(&m, first + done, part, lines);
        tempi_copy_nontemporal(to + done, lines, part);
    }
}

void tempi_unpack_nontemporal(const tempi_layout *layout, int64_t count, const void *packed,
                              int64_t first, int64_t n, void *base)
{
    if (n > 0 && count > 0)
        copy_bytes(&(message){layout, count, base, TEMPI_UNPACK, true, layout->size * count}, first,
                   n, (char *)(uintptr_t)packed);
}
