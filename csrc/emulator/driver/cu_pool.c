/* cu_pool.c: stream-ordered memory. An allocation is valid when the call returns; a free takes
 * effect in stream order, so an unordered later use is a fault. */
#include "emulator/core/emulator.h"

struct tempi_emu_pool {
    int device;
};

static struct tempi_emu_pool pools[EMU_DEVICES]; /* the default pools: there are no others */

static struct tempi_emu_pool *pool_of(int device)
{
    pools[device].device = device;
    return &pools[device];
}

CUresult TEMPI_EMU_API cuMemAllocAsync(CUdeviceptr *pointer, size_t size, CUstream stream);
CUresult TEMPI_EMU_API cuMemAllocAsync(CUdeviceptr *pointer, size_t size, CUstream stream)
{
    tempi_emu_context *context;
    tempi_emu_stream *found;
    tempi_emu_range *range;
    CUresult result = tempi_emu_enter(EMU_cuMemAllocAsync, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    result = tempi_emu_stream_of(context, stream, &found);
    if (result == CUDA_SUCCESS && pointer == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = tempi_emu_allocate(NULL, context->device, size, EMU_POOL, &range);
    if (result != CUDA_SUCCESS)
        return tempi_emu_leave(result);
    range->pool = pool_of(context->device);
    *pointer = range->base;
    return tempi_emu_leave(CUDA_SUCCESS);
}

/* Runs even if the work was skipped: an error must not leak memory. */
static void drop_free(tempi_emu_op *op)
{
    uint64_t base;
    memcpy(&base, op->payload, sizeof base);
    tempi_emu_range *const range = tempi_emu_range_find(base);
    if (range != NULL && range->base == base)
        tempi_emu_release(range);
}

CUresult TEMPI_EMU_API cuMemFreeAsync(CUdeviceptr pointer, CUstream handle);
CUresult TEMPI_EMU_API cuMemFreeAsync(CUdeviceptr pointer, CUstream handle)
{
    tempi_emu_context *context;
    tempi_emu_stream *stream;
    CUresult result = tempi_emu_enter(EMU_cuMemFreeAsync, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    const tempi_emu_range *const range = tempi_emu_range_find(pointer);
    const bool ours = range != NULL && range->base == pointer &&
                      (range->kind == EMU_POOL || range->kind == EMU_DEVICE);
    result = tempi_emu_stream_of(context, handle, &stream);
    if (result != CUDA_SUCCESS || !ours)
        return tempi_emu_leave(result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE);
    tempi_emu_op *const op = tempi_emu_op_new(stream, sizeof pointer, NULL);
    if (op == NULL)
        return tempi_emu_leave(CUDA_ERROR_OUT_OF_MEMORY);
    memcpy(op->payload, &pointer, sizeof pointer);
    op->drop = drop_free;
    return tempi_emu_leave(tempi_emu_submit(op));
}

CUresult TEMPI_EMU_API cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device);
CUresult TEMPI_EMU_API cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    const CUresult result = tempi_emu_enter(EMU_cuDeviceGetDefaultMemPool, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (device < 0 || device >= tempi_emu_option.devices)
        return tempi_emu_leave(CUDA_ERROR_INVALID_DEVICE);
    *pool = pool_of(device);
    return tempi_emu_leave(CUDA_SUCCESS);
}
