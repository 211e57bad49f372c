/* hand.c: the loops that a good programmer writes for one known shape: nested over the dimensions
 * in the order of the packed bytes, with copies of constant size if the runs are short. No vector
 * code, no blocking, no streaming stores. */
#include "native.h"

#include <string.h>

tempi_box bench_box_extend(const tempi_layout *layout, int i, int64_t count)
{
    tempi_box box = layout->boxes[i];
    if (count == 1)
        return box;
    memmove(box.dims + 1, box.dims, (size_t)box.ndims * sizeof box.dims[0]);
    box.dims[0] = (tempi_dim){count, layout->extent, layout->size};
    box.ndims++;
    return box;
}

#define ROWS(N)                           \
    do {                                  \
        for (int64_t i = 0; i < n; i++) { \
            memcpy(to, from, (N));        \
            to += to_stride;              \
            from += from_stride;          \
        }                                 \
        return;                           \
    } while (0)

static void rows(char *to, int64_t to_stride, const char *from, int64_t from_stride, int64_t n,
                 int64_t run)
{
    switch (run) {
    case 1: ROWS(1);
    case 2: ROWS(2);
    case 4: ROWS(4);
    case 8: ROWS(8);
    case 16: ROWS(16);
    case 24: ROWS(24);
    case 32: ROWS(32);
    case 64: ROWS(64);
    default: ROWS((size_t)run);
    }
}

/* Constant size in the common case of an index list, as in rows(). */
#define ENTRIES(N)                                                   \
    do {                                                             \
        for (int64_t i = 0; i < table->n; i++) {                     \
            const tempi_entry *e = &table->entries[i];               \
            if (unpack)                                              \
                memcpy(memory + e->offset, packed + e->packed, (N)); \
            else                                                     \
                memcpy(packed + e->packed, memory + e->offset, (N)); \
        }                                                            \
        return;                                                      \
    } while (0)

static void entries(const tempi_table *table, char *memory, char *packed, int64_t run, int unpack)
{
    switch (run) {
    case 0: ENTRIES((size_t)(e[1].packed - e[0].packed));
    case 4: ENTRIES(4);
    case 8: ENTRIES(8);
    case 16: ENTRIES(16);
    default: ENTRIES((size_t)run);
    }
}

static void walk(const tempi_box *box, int d, char *memory, char *packed, int unpack)
{
    if (d == box->ndims) {
        if (box->table)
            entries(box->table, memory, packed, box->run, unpack);
        else
            memcpy(unpack ? memory : packed, unpack ? packed : memory, (size_t)box->run);
        return;
    }
    const tempi_dim *dim = &box->dims[d];
    if (d == box->ndims - 1 && !box->table) {
        if (unpack)
            rows(memory, dim->stride, packed, dim->packed_stride, dim->count, box->run);
        else
            rows(packed, dim->packed_stride, memory, dim->stride, dim->count, box->run);
        return;
    }
    for (int64_t i = 0; i < dim->count; i++)
        walk(box, d + 1, memory + i * dim->stride, packed + i * dim->packed_stride, unpack);
}

static void copy(const tempi_layout *layout, int64_t count, char *memory, char *packed, int unpack)
{
    for (int i = 0; i < layout->nboxes; i++) {
        const tempi_box box = bench_box_extend(layout, i, count);
        walk(&box, 0, memory + box.offset, packed + box.packed, unpack);
    }
}

int bench_hand_pack(const void *argument)
{
    const struct bench_transfer *t = argument;
    copy(t->layout, t->count, t->memory, t->packed, 0);
    return 0;
}

int bench_hand_unpack(const void *argument)
{
    const struct bench_transfer *t = argument;
    copy(t->layout, t->count, t->memory, t->packed, 1);
    return 0;
}
