/* cu_copy.c: the driver's copy and fill functions. */
#include "emulator/core/copy_work.h"

static CUresult flat(tempi_emu_function function, tempi_emu_transfer transfer, size_t size)
{
    tempi_emu_context *context;
    const CUresult result = tempi_emu_enter(function, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    transfer.box = (tempi_emu_box){.width = size, .height = 1, .depth = 1};
    return tempi_emu_leave(tempi_emu_copy(context, &transfer));
}

static uint64_t host(const void *pointer)
{
    return (uint64_t)(uintptr_t)pointer;
}

#define TRANSFER(d, dm, s, sm, q, w)                                                           \
    (tempi_emu_transfer)                                                                       \
    {                                                                                          \
        .dst = (d), .src = (s), .dst_must = (dm), .src_must = (sm), .stream = (q), .wait = (w) \
    }

CUresult TEMPI_EMU_API cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t size);
CUresult TEMPI_EMU_API cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t size)
{
    return flat(EMU_cuMemcpy, TRANSFER(dst, EMU_ANY, src, EMU_ANY, NULL, true), size);
}

CUresult TEMPI_EMU_API cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t size,
                                     CUstream stream);
CUresult TEMPI_EMU_API cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream)
{
    return flat(EMU_cuMemcpyAsync, TRANSFER(dst, EMU_ANY, src, EMU_ANY, stream, false), size);
}

/* CUmemcpyAttributes */
typedef struct attributes {
    int source_order; /* 1 in stream order, 2 during the call, 3 any */
    int source_hint[2], destination_hint[2];
    unsigned flags;
} attributes;

static bool is_valid(size_t count, const attributes *attrs, const size_t *first, size_t nattrs)
{
    if (count == 0 || !attrs || !first || nattrs == 0 || nattrs > count || first[0] != 0)
        return false;
    for (size_t i = 0; i < nattrs; ++i)
        if (attrs[i].source_order < 1 || attrs[i].source_order > 3 || first[i] >= count ||
            (i > 0 && first[i] <= first[i - 1]))
            return false;
    return true;
}

/* CUDA driver API, cuMemcpyBatchAsync: the copies are in no order, so here the last one is the
 * first; the stream "must not be legacy NULL stream"; each copy has attributes. */
CUresult TEMPI_EMU_API cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
                                             size_t count, attributes *attrs, size_t *first,
                                             size_t nattrs, CUstream stream);
CUresult TEMPI_EMU_API cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
                                             size_t count, attributes *attrs, size_t *first,
                                             size_t nattrs, CUstream stream)
{
    tempi_emu_context *context;
    CUresult result = tempi_emu_enter(EMU_cuMemcpyBatchAsync_v2, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if ((uintptr_t)stream <= 1 || !is_valid(count, attrs, first, nattrs))
        result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = count; i-- > 0 && result == CUDA_SUCCESS;) {
        tempi_emu_transfer transfer = TRANSFER(dsts[i], EMU_ANY, srcs[i], EMU_ANY, stream, false);
        transfer.box = (tempi_emu_box){.width = sizes[i], .height = 1, .depth = 1};
        result = tempi_emu_copy(context, &transfer);
    }
    return tempi_emu_leave(result);
}

CUresult TEMPI_EMU_API cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t size);
CUresult TEMPI_EMU_API cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t size)
{
    return flat(EMU_cuMemcpyHtoD_v2,
                TRANSFER(dst, EMU_MUST_DEVICE, host(src), EMU_MUST_HOST, NULL, true), size);
}

CUresult TEMPI_EMU_API cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t size);
CUresult TEMPI_EMU_API cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t size)
{
    return flat(EMU_cuMemcpyDtoH_v2,
                TRANSFER(host(dst), EMU_MUST_HOST, src, EMU_MUST_DEVICE, NULL, true), size);
}

CUresult TEMPI_EMU_API cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t size);
CUresult TEMPI_EMU_API cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t size)
{
    return flat(EMU_cuMemcpyDtoD_v2,
                TRANSFER(dst, EMU_MUST_DEVICE, src, EMU_MUST_DEVICE, NULL, true), size);
}

CUresult TEMPI_EMU_API cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t size,
                                            CUstream stream);
CUresult TEMPI_EMU_API cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t size,
                                            CUstream stream)
{
    return flat(EMU_cuMemcpyHtoDAsync_v2,
                TRANSFER(dst, EMU_MUST_DEVICE, host(src), EMU_MUST_HOST, stream, false), size);
}

CUresult TEMPI_EMU_API cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t size,
                                            CUstream stream);
CUresult TEMPI_EMU_API cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t size,
                                            CUstream stream)
{
    return flat(EMU_cuMemcpyDtoHAsync_v2,
                TRANSFER(host(dst), EMU_MUST_HOST, src, EMU_MUST_DEVICE, stream, false), size);
}

CUresult TEMPI_EMU_API cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t size,
                                            CUstream stream);
CUresult TEMPI_EMU_API cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t size,
                                            CUstream stream)
{
    return flat(EMU_cuMemcpyDtoDAsync_v2,
                TRANSFER(dst, EMU_MUST_DEVICE, src, EMU_MUST_DEVICE, stream, false), size);
}

/* ---- two and three dimensions ---------------------------------------------------------------- */

/* One side's address and the memory required there; 0: a type that is not emulated. */
static uint64_t side(unsigned type, const void *host_pointer, CUdeviceptr device,
                     tempi_emu_must *must)
{
    *must = type == CU_MEMORYTYPE_HOST     ? EMU_MUST_HOST
            : type == CU_MEMORYTYPE_DEVICE ? EMU_MUST_DEVICE
                                           : EMU_ANY;
    if (type == CU_MEMORYTYPE_HOST)
        return host(host_pointer);
    return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED ? device : 0;
}

static CUresult box(tempi_emu_function function, const tempi_emu_copy3d *c, CUstream stream)
{
    tempi_emu_context *context;
    const CUresult result = tempi_emu_enter(function, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    tempi_emu_transfer t = {.stream = stream};
    t.dst = side(c->dst_type, c->dst_host, c->dst_device, &t.dst_must);
    t.src = side(c->src_type, c->src_host, c->src_device, &t.src_must);
    const bool rows = c->height > 1 || c->depth > 1;
    if (t.dst == 0 || t.src == 0 || c->src_lod != 0 || c->dst_lod != 0 ||
        (rows && (c->src_pitch < c->src_x + c->width || c->dst_pitch < c->dst_x + c->width)) ||
        (c->depth > 1 &&
         (c->src_height < c->src_y + c->height || c->dst_height < c->dst_y + c->height)))
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    t.box = (tempi_emu_box){
        .width = c->width,
        .height = c->height,
        .depth = c->depth,
        .dst_pitch = c->dst_pitch,
        .dst_slice = c->dst_pitch * c->dst_height,
        .src_pitch = c->src_pitch,
        .src_slice = c->src_pitch * c->src_height,
    };
    t.dst += c->dst_z * t.box.dst_slice + c->dst_y * c->dst_pitch + c->dst_x;
    t.src += c->src_z * t.box.src_slice + c->src_y * c->src_pitch + c->src_x;
    return tempi_emu_leave(tempi_emu_copy(context, &t));
}

static tempi_emu_copy3d from_2d(const tempi_emu_copy2d *c)
{
    return (tempi_emu_copy3d){
        .src_x = c->src_x,
        .src_y = c->src_y,
        .src_type = c->src_type,
        .src_host = c->src_host,
        .src_device = c->src_device,
        .src_pitch = c->src_pitch,
        .dst_x = c->dst_x,
        .dst_y = c->dst_y,
        .dst_type = c->dst_type,
        .dst_host = c->dst_host,
        .dst_device = c->dst_device,
        .dst_pitch = c->dst_pitch,
        .width = c->width,
        .height = c->height,
        .depth = 1,
    };
}

CUresult TEMPI_EMU_API cuMemcpy2DAsync_v2(const tempi_emu_copy2d *copy, CUstream stream);
CUresult TEMPI_EMU_API cuMemcpy2DAsync_v2(const tempi_emu_copy2d *copy, CUstream stream)
{
    const tempi_emu_copy3d c = from_2d(copy);
    return box(EMU_cuMemcpy2DAsync_v2, &c, stream);
}

CUresult TEMPI_EMU_API cuMemcpy3DAsync_v2(const tempi_emu_copy3d *copy, CUstream stream);
CUresult TEMPI_EMU_API cuMemcpy3DAsync_v2(const tempi_emu_copy3d *copy, CUstream stream)
{
    return box(EMU_cuMemcpy3DAsync_v2, copy, stream);
}

/* ---- fills ----------------------------------------------------------------------------------- */

static CUresult set(tempi_emu_function function, CUdeviceptr pointer, unsigned char value,
                    size_t count, CUstream stream)
{
    tempi_emu_context *context;
    const CUresult result = tempi_emu_enter(function, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    return tempi_emu_leave(tempi_emu_fill(context, pointer, value, count, stream));
}

CUresult TEMPI_EMU_API cuMemsetD8_v2(CUdeviceptr pointer, unsigned char value, size_t count);
CUresult TEMPI_EMU_API cuMemsetD8_v2(CUdeviceptr pointer, unsigned char value, size_t count)
{
    return set(EMU_cuMemsetD8_v2, pointer, value, count, NULL);
}

CUresult TEMPI_EMU_API cuMemsetD8Async(CUdeviceptr pointer, unsigned char value, size_t count,
                                       CUstream stream);
CUresult TEMPI_EMU_API cuMemsetD8Async(CUdeviceptr pointer, unsigned char value, size_t count,
                                       CUstream stream)
{
    return set(EMU_cuMemsetD8Async, pointer, value, count, stream);
}
