/* cu_pointer.c: pointer attributes. Needs no current context. */
#include "emulator/core/emulator.h"

static CUresult store(void *data, const void *value, size_t size)
{
    memcpy(data, value, size);
    return CUDA_SUCCESS;
}

static CUresult store_int(void *data, int value)
{
    return store(data, &value, sizeof value);
}

static CUresult store_bool(void *data, bool value)
{
    const unsigned char byte = value ? 1 : 0;
    return store(data, &byte, sizeof byte);
}

static CUresult store_address(void *data, uint64_t value)
{
    return store(data, &value, sizeof value);
}

static CUresult store_handle(void *data, const void *value)
{
    return store(data, &value, sizeof value);
}

static bool is_host(const tempi_emu_range *range)
{
    return range->kind == EMU_HOST || range->kind == EMU_REGISTERED;
}

/* Memory of pools and of the virtual-memory functions belongs to no context. */
static CUcontext context_of(const tempi_emu_range *range)
{
    const bool none = range->kind == EMU_POOL || range->kind == EMU_MAPPED;
    return none ? NULL : range->context;
}

static int access_of(const tempi_emu_range *range)
{
    const tempi_emu_context *const current = tempi_emu_current();
    if (current == NULL)
        return 0;
    return tempi_emu_range_open_to(range, current) ? 3 : 0;
}

static CUresult answer(const tempi_emu_range *range, int attribute, uint64_t pointer, void *data)
{
    const bool host = is_host(range);
    switch (attribute) {
    case CU_POINTER_CONTEXT: return store_handle(data, context_of(range));
    case CU_POINTER_MEMORY_TYPE:
        return store_int(data, host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_DEVICE_POINTER: return store_address(data, pointer);
    case CU_POINTER_HOST_POINTER:
        if (!host && range->kind != EMU_MANAGED)
            return CUDA_ERROR_INVALID_VALUE;
        return store_address(data, pointer);
    case CU_POINTER_SYNC_MEMOPS: return store_bool(data, false);
    case CU_POINTER_BUFFER_ID: return store_address(data, range->id);
    case CU_POINTER_IS_MANAGED: return store_bool(data, range->kind == EMU_MANAGED);
    case CU_POINTER_DEVICE_ORDINAL: return store_int(data, range->device);
    case CU_POINTER_IS_LEGACY_IPC_CAPABLE: return store_bool(data, false);
    case CU_POINTER_RANGE_START:
    case CU_POINTER_MAPPING_BASE: return store_address(data, range->base);
    case CU_POINTER_RANGE_SIZE:
    case CU_POINTER_MAPPING_SIZE: return store_address(data, range->size);
    case CU_POINTER_MAPPED: return store_bool(data, true);
    case CU_POINTER_ALLOWED_HANDLE_TYPES: return store_address(data, 0);
    case CU_POINTER_IS_GPU_DIRECT_RDMA_CAPABLE: return store_bool(data, false);
    case CU_POINTER_ACCESS_FLAGS: return store_int(data, access_of(range));
    case CU_POINTER_MEMPOOL_HANDLE: return store_handle(data, range->pool);
    case CU_POINTER_MEMORY_BLOCK_ID: return store_address(data, range->block);
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult TEMPI_EMU_API cuPointerGetAttribute(void *data, int attribute, CUdeviceptr pointer);
CUresult TEMPI_EMU_API cuPointerGetAttribute(void *data, int attribute, CUdeviceptr pointer)
{
    const CUresult result = tempi_emu_enter(EMU_cuPointerGetAttribute, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    const tempi_emu_range *const range = tempi_emu_range_find(pointer);
    if (data == NULL || range == NULL)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    return tempi_emu_leave(answer(range, attribute, pointer, data));
}

static size_t width_of(int attribute)
{
    switch (attribute) {
    case CU_POINTER_MEMORY_TYPE:
    case CU_POINTER_DEVICE_ORDINAL:
    case CU_POINTER_ACCESS_FLAGS: return sizeof(int);
    case CU_POINTER_SYNC_MEMOPS:
    case CU_POINTER_IS_MANAGED:
    case CU_POINTER_IS_LEGACY_IPC_CAPABLE:
    case CU_POINTER_MAPPED:
    case CU_POINTER_IS_GPU_DIRECT_RDMA_CAPABLE: return 1;
    default: return sizeof(uint64_t);
    }
}

/* Never fails for memory unknown to CUDA: then all values are zero, the device -2. */
CUresult TEMPI_EMU_API cuPointerGetAttributes(unsigned n, const int *attributes, void **data,
                                              CUdeviceptr pointer);
CUresult TEMPI_EMU_API cuPointerGetAttributes(unsigned n, const int *attributes, void **data,
                                              CUdeviceptr pointer)
{
    const CUresult result = tempi_emu_enter(EMU_cuPointerGetAttributes, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    const tempi_emu_range *const range = tempi_emu_range_find(pointer);
    for (unsigned i = 0; i < n; i++) {
        if (range != NULL && answer(range, attributes[i], pointer, data[i]) == CUDA_SUCCESS)
            continue;
        memset(data[i], 0, width_of(attributes[i]));
        if (attributes[i] == CU_POINTER_DEVICE_ORDINAL)
            store_int(data[i], -2);
    }
    return tempi_emu_leave(CUDA_SUCCESS);
}
