#include "choose/shape.h"

static int64_t size_of(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

/* Bytes from the last run of a row to the first of the next. */
static int64_t step_of(const tempi_box *box, int64_t extent)
{
    const tempi_dim inner = box->dims[box->ndims - 1];
    const int64_t rows = box->ndims > 1 ? box->dims[box->ndims - 2].stride : extent;
    return size_of(rows - (inner.count - 1) * inner.stride);
}

tempi_shape tempi_shape_of(const tempi_layout *layout)
{
    const tempi_box *box = layout->boxes;
    tempi_shape s = {.run = layout->runs > 0 ? layout->size / layout->runs : 0};
    for (int i = 0; i < layout->nboxes; ++i)
        s.variable |= box[i].run == 0;
    if (layout->nboxes != 1 || box->table)
        return s;
    s.offset = box->offset != 0;
    s.single_run = box->ndims == 0;
    s.stride = size_of(s.single_run ? layout->extent : box->dims[box->ndims - 1].stride);
    s.row = s.single_run ? 0 : box->run * box->dims[box->ndims - 1].count;
    s.step = s.single_run ? 0 : step_of(box, layout->extent);
    s.transposed = box->ndims > 1 && size_of(box->dims[box->ndims - 2].stride) < s.stride;
    return s;
}

enum { ALIASED = 512 };

tempi_family tempi_shape_family(tempi_shape shape)
{
    if (shape.stride == 0)
        return TEMPI_FAMILY_IRREGULAR;
    if (shape.transposed)
        return TEMPI_FAMILY_TRANSPOSED;
    if (shape.single_run)
        return TEMPI_FAMILY_ELEMENTS;
    return shape.stride % ALIASED == 0 ? TEMPI_FAMILY_ALIASED : TEMPI_FAMILY_REGULAR;
}

int tempi_shape_word(const tempi_layout *layout)
{
    int64_t bits = 16 | layout->extent; /* the widest word of the kernels */
    for (int i = 0; i < layout->nboxes; ++i) {
        const tempi_box *box = &layout->boxes[i];
        bits |= box->offset | box->run;
        for (int d = 0; d < box->ndims; ++d)
            bits |= box->dims[d].stride;
    }
    return (int)(bits & -bits);
}
