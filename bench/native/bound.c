/* bound.c: the line-touch bound of a layout.
 *
 * Pack: one load for each cache line that the layout touches, in the layout's order, and sequential
 * stores of the packed size. Unpack is its mirror: sequential loads of the packed size and one
 * store for each touched line. Nothing is computed and no byte reaches its position: only the
 * traffic remains that every pack or unpack in that order needs. The unpack bound leaves garbage in
 * the memory that the datatype describes, and nowhere else.
 *
 * Loads and stores alternate in tiles of TILE packed bytes, small enough for the processor to
 * overlap them and large enough to make loop overhead negligible. */
#include "native.h"
#include "touch.h"

enum { TILE = 1024 };

typedef long long vector __attribute__((vector_size(64), aligned(1), may_alias));

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__)
#define WIDEST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDEST
#endif

/* The packed side of one tile: full vectors, then single bytes. */
INLINE void stream(char *packed, int64_t bytes, int store)
{
    const vector zero = {0};
    int64_t at = 0;
    for (; at + LINE <= bytes; at += LINE) {
        if (store)
            *(vector *)(packed + at) = zero;
        else
            (void)*(volatile char *)(packed + at);
    }
    if (!store) {
        if (at < bytes)
            (void)*(volatile char *)(packed + at);
        return;
    }
    for (; at < bytes; at++)
        packed[at] = 0;
}

/* A row of n runs, in tiles. */
INLINE void row(char *memory, int64_t stride, int64_t n, int64_t run, char *packed, int unpack)
{
    const int64_t tile = run < TILE ? TILE / run : 1;
    touched_row runs = row_of(memory, stride, run);
    for (int64_t i = 0; i < n; i += tile) {
        const int64_t m = n - i < tile ? n - i : tile;
        if (unpack)
            stream(packed + i * run, m * run, 0);
        touch_runs(&runs, i, m, unpack);
        if (!unpack)
            stream(packed + i * run, m * run, 1);
    }
}

/* The entries of an index table. Entries that share a line with their predecessor touch it again,
 * which costs next to nothing. */
INLINE void list(const tempi_table *table, char *memory, int64_t run, char *packed, int unpack)
{
    const tempi_entry *e = table->entries;
    const tempi_entry *const end = e + table->n;
    const int64_t tile = run == 0 ? 1 : run < TILE ? TILE / run : 1;
    while (e < end) {
        const tempi_entry *const stop = end - e < tile ? end : e + tile;
        const int64_t length = run > 0 ? run : e[1].packed - e[0].packed;
        const int64_t bytes = (stop - e) * length;
        if (unpack)
            stream(packed, bytes, 0);
        for (; e < stop; e++) {
            if (length <= LINE)
                touch_short(memory + e->offset, length, unpack);
            else
                touch(memory + e->offset, memory + e->offset + length, unpack);
        }
        if (!unpack)
            stream(packed, bytes, 1);
        packed += bytes;
    }
}

INLINE void walk_with(const tempi_box *box, char *memory, char *packed, int unpack)
{
    int64_t index[TEMPI_MAX_DIMS] = {0};
    const int outer = box->table ? box->ndims : box->ndims - 1;
    for (;;) {
        if (box->table)
            list(box->table, memory, box->run, packed, unpack);
        else if (box->ndims == 0)
            row(memory, box->run, 1, box->run, packed, unpack);
        else
            row(memory, box->dims[outer].stride, box->dims[outer].count, box->run, packed, unpack);
        int d = outer - 1;
        for (; d >= 0; d--) {
            const tempi_dim *dim = &box->dims[d];
            memory += dim->stride;
            packed += dim->packed_stride;
            if (++index[d] < dim->count)
                break;
            memory -= dim->count * dim->stride;
            packed -= dim->count * dim->packed_stride;
            index[d] = 0;
        }
        if (d < 0)
            return;
    }
}

WIDEST static void walk_pack(const tempi_box *box, char *memory, char *packed)
{
    walk_with(box, memory, packed, 0);
}

WIDEST static void walk_unpack(const tempi_box *box, char *memory, char *packed)
{
    walk_with(box, memory, packed, 1);
}

int bench_bound_pack(const void *argument)
{
    const struct bench_transfer *t = argument;
    for (int i = 0; i < t->layout->nboxes; i++) {
        const tempi_box box = bench_box_extend(t->layout, i, t->count);
        walk_pack(&box, t->memory + box.offset, t->packed + box.packed);
    }
    return 0;
}

int bench_bound_unpack(const void *argument)
{
    const struct bench_transfer *t = argument;
    for (int i = 0; i < t->layout->nboxes; i++) {
        const tempi_box box = bench_box_extend(t->layout, i, t->count);
        walk_unpack(&box, t->memory + box.offset, t->packed + box.packed);
    }
    return 0;
}
