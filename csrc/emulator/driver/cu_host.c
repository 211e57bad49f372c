/* cu_host.c: pinned host memory; devices reach it at the host's address. */
#include "emulator/core/emulator.h"

#include <sys/mman.h>

static CUresult host_allocate(tempi_emu_context *context, void **pointer, size_t size,
                              unsigned flags)
{
    if (pointer == NULL || size == 0 || flags > 7)
        return CUDA_ERROR_INVALID_VALUE;
    void *const bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                             0);
    if (bytes == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const tempi_emu_range made = {
        .base = (uint64_t)(uintptr_t)bytes,
        .size = size,
        .bytes = bytes,
        .device = context->device,
        .context = context,
        .kind = EMU_HOST,
        .readable = ~0u,
    };
    if (tempi_emu_range_add(&made) == NULL) {
        munmap(bytes, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *pointer = bytes;
    return CUDA_SUCCESS;
}

CUresult TEMPI_EMU_API cuMemHostAlloc(void **pointer, size_t size, unsigned flags);
CUresult TEMPI_EMU_API cuMemHostAlloc(void **pointer, size_t size, unsigned flags)
{
    tempi_emu_context *context;
    const CUresult result = tempi_emu_enter(EMU_cuMemHostAlloc, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    return tempi_emu_leave(host_allocate(context, pointer, size, flags));
}

/* Removes host memory of one kind from the table once no work can use it. */
static CUresult host_free(tempi_emu_function function, void *pointer, tempi_emu_kind kind,
                          CUresult unknown)
{
    const uint64_t base = (uint64_t)(uintptr_t)pointer;
    CUresult result = tempi_emu_enter(function, EMU_CONTEXT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    tempi_emu_range *range = tempi_emu_range_find(base);
    if (range == NULL || range->base != base || range->kind != kind)
        return tempi_emu_leave(unknown);
    for (int i = 0; i < tempi_emu_option.devices; i++)
        result = tempi_emu_drive_device(i);
    range = tempi_emu_range_find(base); /* the lock was released meanwhile */
    if (range == NULL)
        return tempi_emu_leave(unknown);
    tempi_emu_release(range);
    return tempi_emu_leave(result);
}

CUresult TEMPI_EMU_API cuMemFreeHost(void *pointer);
CUresult TEMPI_EMU_API cuMemFreeHost(void *pointer)
{
    return host_free(EMU_cuMemFreeHost, pointer, EMU_HOST, CUDA_ERROR_INVALID_VALUE);
}

CUresult TEMPI_EMU_API cuMemHostUnregister(void *pointer);
CUresult TEMPI_EMU_API cuMemHostUnregister(void *pointer)
{
    return host_free(EMU_cuMemHostUnregister, pointer, EMU_REGISTERED,
                     CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

/* Whether these bytes overlap any known memory. */
static bool overlaps(uint64_t base, size_t size)
{
    for (size_t i = 0; i < tempi_emu_range_count(); i++) {
        const tempi_emu_range *const range = tempi_emu_range_at(i);
        if (range->base < base + size && base < range->base + range->size)
            return true;
    }
    return false;
}

CUresult TEMPI_EMU_API cuMemHostRegister_v2(void *pointer, size_t size, unsigned flags);
CUresult TEMPI_EMU_API cuMemHostRegister_v2(void *pointer, size_t size, unsigned flags)
{
    tempi_emu_context *context;
    const CUresult result = tempi_emu_enter(EMU_cuMemHostRegister_v2, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    const uint64_t base = (uint64_t)(uintptr_t)pointer;
    if (pointer == NULL || size == 0 || flags > 15)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    if (overlaps(base, size))
        return tempi_emu_leave(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    const tempi_emu_range made = {
        .base = base,
        .size = size,
        .bytes = pointer,
        .device = context->device,
        .context = context,
        .kind = EMU_REGISTERED,
        .readable = ~0u,
    };
    const bool added = tempi_emu_range_add(&made) != NULL;
    return tempi_emu_leave(added ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

/* The range of pinned memory that holds a host pointer, or NULL. */
static const tempi_emu_range *pinned(const void *pointer)
{
    const tempi_emu_range *const range = tempi_emu_range_find((uint64_t)(uintptr_t)pointer);
    return range != NULL && (range->kind == EMU_HOST || range->kind == EMU_REGISTERED) ? range
                                                                                       : NULL;
}

CUresult TEMPI_EMU_API cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *pointer,
                                                    unsigned flags);
CUresult TEMPI_EMU_API cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *pointer,
                                                    unsigned flags)
{
    const CUresult result = tempi_emu_enter(EMU_cuMemHostGetDevicePointer_v2, EMU_CONTEXT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (device == NULL || flags != 0 || pinned(pointer) == NULL)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    *device = (uint64_t)(uintptr_t)pointer;
    return tempi_emu_leave(CUDA_SUCCESS);
}
