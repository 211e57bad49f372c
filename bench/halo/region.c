/* region.c: packing by hand. In host memory row by row; in device memory by one 3-D copy of the
 * CUDA driver per region and field, between the fields and pinned host memory. */
#include "cuda.h"
#include "halo.h"

#include <string.h>

/* ---- host memory ----------------------------------------------------------------------------- */

/* Rows of N doubles with N known to the compiler, as one writes for a fixed radius. */
#define COPY_ROWS(N)                            \
    for (int y = 0; y < rows; y++) {            \
        memcpy(to, from, (N) * sizeof(double)); \
        to += to_stride;                        \
        from += from_stride;                    \
    }

static void copy_rows(double *to, size_t to_stride, const double *from, size_t from_stride,
                      int rows, int length)
{
    switch (length) {
    case 1: COPY_ROWS(1) return;
    case 2: COPY_ROWS(2) return;
    case 3: COPY_ROWS(3) return;
    case 4: COPY_ROWS(4) return;
    default: COPY_ROWS((size_t)length) return;
    }
}

static size_t region_offset(const struct halo *h, const struct region *g, int field, int z)
{
    const size_t ny = (size_t)h->dims[1], nx = (size_t)h->dims[2];
    return (size_t)field * h->cells + ((size_t)(g->start[0] + z) * ny + (size_t)g->start[1]) * nx +
           (size_t)g->start[2];
}

static void pack_rows(const struct halo *h, const struct region *g, int field, double *to)
{
    const size_t row = (size_t)g->size[2], plane = row * (size_t)g->size[1];
    for (int z = 0; z < g->size[0]; z++, to += plane)
        copy_rows(to, row, h->data + region_offset(h, g, field, z), (size_t)h->dims[2], g->size[1],
                  g->size[2]);
}

static void unpack_rows(const struct halo *h, const struct region *g, int field, const double *from)
{
    const size_t row = (size_t)g->size[2], plane = row * (size_t)g->size[1];
    for (int z = 0; z < g->size[0]; z++, from += plane)
        copy_rows(h->data + region_offset(h, g, field, z), (size_t)h->dims[2], from, row,
                  g->size[1], g->size[2]);
}

/* ---- device memory --------------------------------------------------------------------------- */

static struct cuda_box box_in_field(const struct halo *h, const struct region *g, int field)
{
    return (struct cuda_box){.base = h->data + (size_t)field * h->cells,
                             .pitch = (size_t)h->dims[2] * sizeof(double),
                             .height = (size_t)h->dims[1],
                             .x = (size_t)g->start[2] * sizeof(double),
                             .y = (size_t)g->start[1],
                             .z = (size_t)g->start[0]};
}

static struct cuda_box box_of_packed(const struct region *g, void *packed)
{
    return (struct cuda_box){.base = packed,
                             .on_host = 1,
                             .pitch = (size_t)g->size[2] * sizeof(double),
                             .height = (size_t)g->size[1]};
}

static void start_copy(const struct region *g, const struct cuda_box *to,
                       const struct cuda_box *from)
{
    cuda_copy_box(to, from, (size_t)g->size[2] * sizeof(double), (size_t)g->size[1],
                  (size_t)g->size[0]);
}

/* ---- both ------------------------------------------------------------------------------------ */

static size_t region_cells(const struct region *g)
{
    return (size_t)g->size[0] * (size_t)g->size[1] * (size_t)g->size[2];
}

void region_pack(const struct halo *h, const struct region *g, int field, int fields, void *out)
{
    double *to = out;
    for (int f = field; f < field + fields; f++, to += region_cells(g)) {
        if (!h->options.memory->copy) {
            pack_rows(h, g, f, to);
            continue;
        }
        const struct cuda_box from = box_in_field(h, g, f), packed = box_of_packed(g, to);
        start_copy(g, &packed, &from);
    }
}

void region_unpack(struct halo *h, const struct region *g, int field, int fields, const void *in)
{
    const double *from = in;
    for (int f = field; f < field + fields; f++, from += region_cells(g)) {
        if (!h->options.memory->copy) {
            unpack_rows(h, g, f, from);
            continue;
        }
        const struct cuda_box packed = box_of_packed(g, (void *)(uintptr_t)from),
                              to = box_in_field(h, g, f);
        start_copy(g, &to, &packed);
    }
}

void region_wait(const struct halo *h)
{
    if (h->options.memory->copy)
        cuda_wait();
}
