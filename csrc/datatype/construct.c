/* datatype/construct.c: the regular constructors (MPI-5.0 sections 5.1.2 and 5.1.7). */
#include "datatype/layout_builder.h"
#include <stdlib.h>

int tempi_layout_bytes(int64_t size, tempi_layout **out)
{
    if (size < 0 || !out)
        return TEMPI_ERR_ARG;
    tempi_builder builder;
    tempi_builder_init(&builder);
    const tempi_box box = {.run = size};
    const int status = size ? tempi_builder_append(&builder, &box) : TEMPI_OK;
    builder.size = builder.ub = size;
    return tempi_builder_layout(status, &builder, out);
}

int tempi_layout_pair(int64_t value_size, int64_t index_offset, int64_t index_size, int64_t extent,
                      tempi_layout **out)
{
    int64_t end, size;
    if (value_size <= 0 || index_size <= 0 || index_offset < value_size || !out)
        return TEMPI_ERR_ARG;
    if (tempi_add64(index_offset, index_size, &end) || tempi_add64(value_size, index_size, &size))
        return TEMPI_ERR_OVERFLOW;
    if (extent < end)
        return TEMPI_ERR_ARG;
    tempi_builder builder;
    tempi_builder_init(&builder);
    const tempi_box value = {.run = value_size};
    const tempi_box index = {.offset = index_offset, .packed = value_size, .run = index_size};
    int status = tempi_builder_append(&builder, &value);
    if (!status)
        status = tempi_builder_append(&builder, &index);
    builder.size = size;
    builder.ub = extent;
    return tempi_builder_layout(status, &builder, out);
}

int tempi_layout_contiguous(int64_t count, const tempi_layout *inner, tempi_layout **out)
{
    if (count < 0 || !inner || !out)
        return TEMPI_ERR_ARG;
    tempi_builder builder;
    tempi_builder_init(&builder);
    const int status = tempi_builder_block(&builder, inner, count, 0);
    return tempi_builder_layout(status, &builder, out);
}

int tempi_layout_hvector(int64_t count, int64_t blocklength, int64_t stride,
                         const tempi_layout *inner, tempi_layout **out)
{
    if (count < 0 || blocklength < 0 || !inner || !out)
        return TEMPI_ERR_ARG;
    tempi_builder builder;
    tempi_builder_init(&builder);
    int status = TEMPI_OK;
    int64_t last;
    if (count > 0) {
        status = tempi_builder_block(&builder, inner, blocklength, 0);
        const int64_t block = builder.size;
        if (!status)
            status = tempi_builder_repeat(&builder, 0, count, stride, block);
        if (!status &&
            (tempi_mul64(count, block, &builder.size) || tempi_mul64(count - 1, stride, &last)))
            status = TEMPI_ERR_OVERFLOW;
        if (!status)
            status = tempi_builder_bound(&builder, inner, blocklength, last);
    }
    return tempi_builder_layout(status, &builder, out);
}

int tempi_layout_resized(int64_t lb, int64_t extent, const tempi_layout *inner, tempi_layout **out)
{
    if (!inner || !out)
        return TEMPI_ERR_ARG;
    tempi_builder builder;
    tempi_builder_init(&builder);
    int status = tempi_builder_block(&builder, inner, 1, 0);
    builder.lb = lb;
    if (!status && tempi_add64(lb, extent, &builder.ub))
        status = TEMPI_ERR_OVERFLOW;
    return tempi_builder_layout(status, &builder, out);
}

void tempi_layout_free(tempi_layout *layout)
{
    if (!layout)
        return;
    for (int32_t i = 0; i < layout->nboxes; i++)
        tempi_table_release(layout->boxes[i].table);
    for (int i = 0; i < 2; i++)
        free(atomic_load_explicit(&tempi_layout_object_of(layout)->plans[i], memory_order_acquire));
    free(layout);
}

int64_t tempi_layout_footprint(const tempi_layout *layout)
{
    int64_t bytes = (int64_t)sizeof(tempi_layout_object) +
                    layout->nboxes * (int64_t)sizeof(tempi_box);
    const tempi_table *last = NULL;
    for (int32_t i = 0; i < layout->nboxes; i++) {
        const tempi_table *table = layout->boxes[i].table;
        if (table && table != last) /* boxes that share one are neighbours */
            bytes += (int64_t)sizeof(tempi_shared_table) +
                     (table->n + 1) * (int64_t)sizeof(tempi_entry);
        last = table ? table : last;
    }
    return bytes;
}
