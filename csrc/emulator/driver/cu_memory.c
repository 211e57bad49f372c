/* cu_memory.c: device and managed memory. */
#include "emulator/core/emulator.h"

#include <sys/mman.h>

enum { POISON = 0xa7, POISON_MOST = 1 << 20 };

uint64_t tempi_emu_used[EMU_DEVICES];

static bool fits(int device, size_t size)
{
    return size <= tempi_emu_option.memory &&
           tempi_emu_used[device] <= tempi_emu_option.memory - size;
}

CUresult tempi_emu_allocate(tempi_emu_context *context, int device, size_t size,
                            tempi_emu_kind kind, tempi_emu_range **range)
{
    if (size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!fits(device, size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    const uint64_t base = tempi_emu_space_take(size, EMU_PAGE, 0);
    if (base == 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!tempi_emu_space_map(base, size, tempi_emu_space_offset(base)))
        goto give;
    const tempi_emu_range made = {
        .base = base,
        .size = size,
        .bytes = tempi_emu_space_bytes(base),
        .device = device,
        .context = context,
        .kind = kind,
    };
    *range = tempi_emu_range_add(&made);
    if (*range == NULL)
        goto unmap;
    /* New memory is poisoned: on a device, too, its contents are undefined. Only the first part, so
     * that large memory stays untouched. */
    memset((*range)->bytes, POISON, size < POISON_MOST ? size : POISON_MOST);
    tempi_emu_used[device] += size;
    return CUDA_SUCCESS;

unmap:
    tempi_emu_space_unmap(base, size);
give:
    tempi_emu_space_give(base);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

void tempi_emu_release(tempi_emu_range *range)
{
    const uint64_t base = range->base;
    const uint64_t size = range->size;
    if (range->kind == EMU_MANAGED || range->kind == EMU_HOST)
        munmap(range->bytes, size);
    if (range->kind != EMU_HOST && range->kind != EMU_REGISTERED && range->kind != EMU_OPENED)
        tempi_emu_used[range->device] -= size;
    if (tempi_emu_range_on_device(range)) {
        tempi_emu_space_unmap(base, size);
        tempi_emu_space_forget(tempi_emu_space_offset(base), size);
        tempi_emu_space_give(base);
    }
    tempi_emu_range_remove(base);
}

/* Frees the memory of a context; with a primary one also its device's pools. The virtual-memory
 * functions own mapped memory. */
void tempi_emu_release_context(const tempi_emu_context *context)
{
    const bool pools = tempi_emu_context_primary(context);
    for (size_t i = tempi_emu_range_count(); i-- > 0;) {
        tempi_emu_range *const range = tempi_emu_range_at(i);
        if (range->context == context ||
            (pools && range->kind == EMU_POOL && range->device == context->device))
            tempi_emu_release(range);
    }
}

CUresult TEMPI_EMU_API cuMemAlloc_v2(CUdeviceptr *pointer, size_t size);
CUresult TEMPI_EMU_API cuMemAlloc_v2(CUdeviceptr *pointer, size_t size)
{
    tempi_emu_context *context;
    tempi_emu_range *range;
    CUresult result = tempi_emu_enter(EMU_cuMemAlloc_v2, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (pointer == NULL)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    result = tempi_emu_allocate(context, context->device, size, EMU_DEVICE, &range);
    if (result == CUDA_SUCCESS)
        *pointer = range->base;
    return tempi_emu_leave(result);
}

/* Waits for all work of the device that owns the memory, as the real driver does. */
CUresult TEMPI_EMU_API cuMemFree_v2(CUdeviceptr pointer);
CUresult TEMPI_EMU_API cuMemFree_v2(CUdeviceptr pointer)
{
    tempi_emu_context *context;
    CUresult result = tempi_emu_enter(EMU_cuMemFree_v2, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (pointer == 0)
        return tempi_emu_leave(CUDA_SUCCESS);
    tempi_emu_range *range = tempi_emu_range_find(pointer);
    const bool ours = range != NULL && range->base == pointer &&
                      (range->kind == EMU_DEVICE || range->kind == EMU_POOL ||
                       range->kind == EMU_MANAGED);
    if (!ours)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    result = range->context ? tempi_emu_drive_context(range->context)
                            : tempi_emu_drive_device(range->device);
    range = tempi_emu_range_find(pointer); /* the lock was released meanwhile */
    if (range == NULL)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    tempi_emu_release(range);
    return tempi_emu_leave(result);
}

CUresult TEMPI_EMU_API cuMemAllocManaged(CUdeviceptr *pointer, size_t size, unsigned flags);
CUresult TEMPI_EMU_API cuMemAllocManaged(CUdeviceptr *pointer, size_t size, unsigned flags)
{
    tempi_emu_context *context;
    const CUresult result = tempi_emu_enter(EMU_cuMemAllocManaged, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (pointer == NULL || size == 0 || (flags != 1 && flags != 2))
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    if (!fits(context->device, size))
        return tempi_emu_leave(CUDA_ERROR_OUT_OF_MEMORY);
    void *const bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                             0);
    if (bytes == MAP_FAILED)
        return tempi_emu_leave(CUDA_ERROR_OUT_OF_MEMORY);
    const tempi_emu_range made = {
        .base = (uint64_t)(uintptr_t)bytes,
        .size = size,
        .bytes = bytes,
        .device = context->device,
        .context = context,
        .kind = EMU_MANAGED,
        .readable = ~0u,
    };
    if (tempi_emu_range_add(&made) == NULL) {
        munmap(bytes, size);
        return tempi_emu_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    tempi_emu_used[context->device] += size;
    *pointer = made.base;
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuMemGetInfo_v2(size_t *available, size_t *total);
CUresult TEMPI_EMU_API cuMemGetInfo_v2(size_t *available, size_t *total)
{
    tempi_emu_context *context;
    const CUresult result = tempi_emu_enter(EMU_cuMemGetInfo_v2, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (available != NULL)
        *available = tempi_emu_option.memory - tempi_emu_used[context->device];
    if (total != NULL)
        *total = tempi_emu_option.memory;
    return tempi_emu_leave(CUDA_SUCCESS);
}
