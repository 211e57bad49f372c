/* copy_work.c: copies and fills as stream work.
 *
 * With TEMPI_EMULATOR_PAGEABLE=staged a pageable source of an asynchronous copy has been read when
 * the call returns, and a copy to pageable memory is finished then, as drivers usually do. They
 * need not: such copies "might be synchronous with respect to host" (CUDA driver API, "API
 * synchronization behavior"), and where devices access pageable memory themselves they are not.
 * With `late` they run in their stream, as any other. */
#include "emulator/core/copy_work.h"
#include "emulator/core/emulator.h"

#include <stdlib.h>

/* A virtual address range may be mapped piece by piece: a copy may span adjacent mappings. */
static bool holds(const tempi_emu_range *range, uint64_t address, size_t extent)
{
    size_t left = range->size - (address - range->base);
    while (extent > left) {
        const tempi_emu_range *const next = tempi_emu_range_find(range->base + range->size);
        if (!tempi_emu_range_on_device(next) || next->bytes != range->bytes + range->size)
            return false;
        range = next;
        extent -= left;
        left = range->size;
    }
    return true;
}

CUresult tempi_emu_place_of(uint64_t address, size_t extent, tempi_emu_place *place)
{
    tempi_emu_range *const range = tempi_emu_range_find(address);
    if (range == NULL) {
        *place = (tempi_emu_place){NULL, (uint8_t *)(uintptr_t)address};
        return tempi_emu_space_holds(address) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    }
    const bool device = tempi_emu_range_on_device(range);
    if (device && !holds(range, address, extent))
        return CUDA_ERROR_INVALID_VALUE;
    *place = (tempi_emu_place){range, range->bytes + (address - range->base)};
    return CUDA_SUCCESS;
}

static CUresult copy_box(tempi_emu_op *op)
{
    const tempi_emu_box *const box = (const tempi_emu_box *)(void *)op->payload;
    for (size_t z = 0; z < box->depth; z++)
        for (size_t y = 0; y < box->height; y++)
            memmove(box->dst + z * box->dst_slice + y * box->dst_pitch,
                    box->src + z * box->src_slice + y * box->src_pitch, box->width);
    return CUDA_SUCCESS;
}

static void drop_box(tempi_emu_op *op)
{
    free(((tempi_emu_box *)(void *)op->payload)->staged);
}

/* Reads a pageable source now, into a packed copy. */
static CUresult stage(tempi_emu_box *box)
{
    uint8_t *const bytes = malloc(box->width * box->height * box->depth);
    if (bytes == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint8_t *to = bytes;
    for (size_t z = 0; z < box->depth; z++)
        for (size_t y = 0; y < box->height; y++, to += box->width)
            memcpy(to, box->src + z * box->src_slice + y * box->src_pitch, box->width);
    box->src = box->staged = bytes;
    box->src_pitch = box->width;
    box->src_slice = box->width * box->height;
    return CUDA_SUCCESS;
}

static size_t span(const tempi_emu_box *box, size_t pitch, size_t slice)
{
    return (box->depth - 1) * slice + (box->height - 1) * pitch + box->width;
}

static CUresult submit_box(tempi_emu_stream *stream, const tempi_emu_box *box)
{
    tempi_emu_op *const op = tempi_emu_op_new(stream, sizeof *box, copy_box);
    if (op == NULL) {
        free(box->staged);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(op->payload, box, sizeof *box);
    op->drop = drop_box;
    return tempi_emu_submit(op);
}

CUresult tempi_emu_copy(tempi_emu_context *context, const tempi_emu_transfer *t)
{
    tempi_emu_box box = t->box;
    tempi_emu_place dst;
    tempi_emu_place src;
    tempi_emu_stream *stream;
    CUresult result = tempi_emu_stream_of(context, t->stream, &stream);
    if (result != CUDA_SUCCESS || box.width == 0 || box.height == 0 || box.depth == 0)
        return result;
    result = tempi_emu_place_of(t->dst, span(&box, box.dst_pitch, box.dst_slice), &dst);
    if (result == CUDA_SUCCESS)
        result = tempi_emu_place_of(t->src, span(&box, box.src_pitch, box.src_slice), &src);
    if (result != CUDA_SUCCESS)
        return result;
    const bool dst_device = tempi_emu_range_on_device(dst.range);
    const bool src_device = tempi_emu_range_on_device(src.range);
    if ((t->dst_must == EMU_MUST_DEVICE && dst.range == NULL) ||
        (t->src_must == EMU_MUST_DEVICE && src.range == NULL) ||
        (t->dst_must == EMU_MUST_HOST && dst_device) ||
        (t->src_must == EMU_MUST_HOST && src_device))
        return CUDA_ERROR_INVALID_VALUE;
    box.dst = dst.bytes;
    box.src = src.bytes;
    /* Copies between devices do not block; synchronous copies with host memory do. */
    const bool late = tempi_emu_option.late_pageable;
    const bool wait = t->wait ? !(dst_device && src_device) : dst.range == NULL && !late;
    if (!wait && src.range == NULL && !late)
        result = stage(&box);
    if (result == CUDA_SUCCESS)
        result = submit_box(stream, &box);
    if (result == CUDA_SUCCESS && wait)
        result = tempi_emu_drive((tempi_emu_point){stream, stream->submitted});
    return result;
}

/* ---- fills ----------------------------------------------------------------------------------- */

typedef struct {
    uint8_t *bytes;
    size_t count;
    uint8_t value;
} fill;

static CUresult run_fill(tempi_emu_op *op)
{
    const fill *const made = (const fill *)(void *)op->payload;
    memset(made->bytes, made->value, made->count);
    return CUDA_SUCCESS;
}

CUresult tempi_emu_fill(tempi_emu_context *context, CUdeviceptr pointer, uint8_t value,
                        size_t count, CUstream handle)
{
    tempi_emu_place place;
    tempi_emu_stream *stream;
    CUresult result = tempi_emu_stream_of(context, handle, &stream);
    if (result != CUDA_SUCCESS || count == 0)
        return result;
    result = tempi_emu_place_of(pointer, count, &place);
    if (result != CUDA_SUCCESS)
        return result;
    if (place.range == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    tempi_emu_op *const op = tempi_emu_op_new(stream, sizeof(fill), run_fill);
    if (op == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const fill made = {place.bytes, count, value};
    memcpy(op->payload, &made, sizeof made);
    return tempi_emu_submit(op);
}
