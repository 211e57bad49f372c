/* cu_vmm.c: virtual memory management: reserve, create, map, set access. */
#include "emulator/core/emulator.h"

#include <stdlib.h>

enum { GRANULARITY = 2 << 20 };

/* Memory without an address. Its position in the file is that of unused addresses. */
typedef struct physical {
    struct physical *next;
    uint64_t id;
    uint64_t size;
    uint64_t address;
    int device;
    unsigned handles;
    unsigned mappings;
    tempi_emu_allocation properties;
} physical;

typedef struct reservation {
    struct reservation *next;
    uint64_t base;
    uint64_t size;
} reservation;

static physical *physicals;
static reservation *reservations;

static physical *find_physical(uint64_t id)
{
    physical *p = physicals;
    while (p != NULL && p->id != id)
        p = p->next;
    return p;
}

static void physical_drop(physical *memory)
{
    if (memory->handles > 0 || memory->mappings > 0)
        return;
    physical **place = &physicals;
    while (*place != memory)
        place = &(*place)->next;
    *place = memory->next;
    tempi_emu_space_forget(tempi_emu_space_offset(memory->address), memory->size);
    tempi_emu_space_give(memory->address);
    tempi_emu_used[memory->device] -= memory->size;
    free(memory);
}

static bool on_device(const tempi_emu_location *location)
{
    return location->type == 1 && location->id >= 0 && location->id < tempi_emu_option.devices;
}

static CUresult create(uint64_t *handle, size_t size, const tempi_emu_allocation *properties)
{
    if (handle == NULL || size == 0 || size % GRANULARITY != 0 || properties->type != 1)
        return CUDA_ERROR_INVALID_VALUE;
    if (!on_device(&properties->location))
        return CUDA_ERROR_INVALID_DEVICE;
    uint64_t *const used = &tempi_emu_used[properties->location.id];
    if (size > tempi_emu_option.memory || *used > tempi_emu_option.memory - size)
        return CUDA_ERROR_OUT_OF_MEMORY;
    physical *const made = calloc(1, sizeof *made);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->address = tempi_emu_space_take(size, EMU_PAGE, 0);
    if (made->address == 0) {
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->id = tempi_emu_id();
    made->size = size;
    made->device = properties->location.id;
    made->handles = 1;
    made->properties = *properties;
    made->next = physicals;
    physicals = made;
    *used += size;
    *handle = made->id;
    return CUDA_SUCCESS;
}

CUresult TEMPI_EMU_API cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                                   const tempi_emu_allocation *properties,
                                   unsigned long long flags);
CUresult TEMPI_EMU_API cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                                   const tempi_emu_allocation *properties, unsigned long long flags)
{
    const CUresult result = tempi_emu_enter(EMU_cuMemCreate, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    return tempi_emu_leave(flags != 0 ? CUDA_ERROR_INVALID_VALUE
                                      : create(handle, size, properties));
}

CUresult TEMPI_EMU_API cuMemRelease(CUmemGenericAllocationHandle handle);
CUresult TEMPI_EMU_API cuMemRelease(CUmemGenericAllocationHandle handle)
{
    const CUresult result = tempi_emu_enter(EMU_cuMemRelease, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    physical *const memory = find_physical(handle);
    if (memory == NULL || memory->handles == 0)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    memory->handles--;
    physical_drop(memory);
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuMemAddressReserve(CUdeviceptr *pointer, size_t size, size_t alignment,
                                           CUdeviceptr hint, unsigned long long flags);
CUresult TEMPI_EMU_API cuMemAddressReserve(CUdeviceptr *pointer, size_t size, size_t alignment,
                                           CUdeviceptr hint, unsigned long long flags)
{
    const CUresult result = tempi_emu_enter(EMU_cuMemAddressReserve, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (pointer == NULL || size == 0 || size % GRANULARITY != 0 ||
        (alignment & (alignment - 1)) != 0 || flags != 0)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    reservation *const made = malloc(sizeof *made);
    const uint64_t align = alignment > GRANULARITY ? alignment : GRANULARITY;
    const uint64_t base = made != NULL ? tempi_emu_space_take(size, align, hint) : 0;
    if (base == 0) {
        free(made);
        return tempi_emu_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *made = (reservation){reservations, base, size};
    reservations = made;
    *pointer = base;
    return tempi_emu_leave(CUDA_SUCCESS);
}

/* Whether anything is mapped there. */
static bool occupied(uint64_t base, size_t size)
{
    for (size_t i = 0; i < tempi_emu_range_count(); i++) {
        const tempi_emu_range *const range = tempi_emu_range_at(i);
        if (range->base < base + size && base < range->base + range->size)
            return true;
    }
    return false;
}

CUresult TEMPI_EMU_API cuMemAddressFree(CUdeviceptr pointer, size_t size);
CUresult TEMPI_EMU_API cuMemAddressFree(CUdeviceptr pointer, size_t size)
{
    const CUresult result = tempi_emu_enter(EMU_cuMemAddressFree, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    reservation **place = &reservations;
    while (*place != NULL && ((*place)->base != pointer || (*place)->size != size))
        place = &(*place)->next;
    if (*place == NULL || occupied(pointer, size))
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    reservation *const gone = *place;
    *place = gone->next;
    tempi_emu_space_give(gone->base);
    free(gone);
    return tempi_emu_leave(CUDA_SUCCESS);
}

static bool reserved(uint64_t base, size_t size)
{
    for (const reservation *r = reservations; r != NULL; r = r->next)
        if (base >= r->base && size <= r->size && base - r->base <= r->size - size)
            return true;
    return false;
}

CUresult TEMPI_EMU_API cuMemMap(CUdeviceptr pointer, size_t size, size_t offset,
                                CUmemGenericAllocationHandle handle, unsigned long long flags);
CUresult TEMPI_EMU_API cuMemMap(CUdeviceptr pointer, size_t size, size_t offset,
                                CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    const CUresult result = tempi_emu_enter(EMU_cuMemMap, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    physical *const memory = find_physical(handle);
    if (memory == NULL || flags != 0 || offset != 0 || size == 0 || size > memory->size ||
        pointer % GRANULARITY != 0 || size % GRANULARITY != 0 || !reserved(pointer, size) ||
        occupied(pointer, size))
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    if (!tempi_emu_space_map(pointer, size, tempi_emu_space_offset(memory->address)))
        return tempi_emu_leave(CUDA_ERROR_MAP_FAILED);
    const tempi_emu_range made = {
        .base = pointer,
        .size = size,
        .bytes = tempi_emu_space_bytes(pointer),
        .block = memory->id,
        .device = memory->device,
        .kind = EMU_MAPPED,
    };
    if (tempi_emu_range_add(&made) == NULL) {
        tempi_emu_space_unmap(pointer, size);
        return tempi_emu_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    memory->mappings++;
    return tempi_emu_leave(CUDA_SUCCESS);
}

/* The next mapping at or above an address and below an end. */
static tempi_emu_range *next_mapping(uint64_t from, uint64_t end)
{
    for (size_t i = 0; i < tempi_emu_range_count(); i++) {
        tempi_emu_range *const range = tempi_emu_range_at(i);
        if (range->kind == EMU_MAPPED && range->base >= from && range->base + range->size <= end)
            return range;
    }
    return NULL;
}

CUresult TEMPI_EMU_API cuMemUnmap(CUdeviceptr pointer, size_t size);
CUresult TEMPI_EMU_API cuMemUnmap(CUdeviceptr pointer, size_t size)
{
    const CUresult result = tempi_emu_enter(EMU_cuMemUnmap, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    tempi_emu_range *range = next_mapping(pointer, pointer + size);
    if (range == NULL || range->base != pointer)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    for (; range != NULL; range = next_mapping(pointer, pointer + size)) {
        physical *const memory = find_physical(range->block);
        tempi_emu_space_unmap(range->base, range->size);
        tempi_emu_range_remove(range->base);
        memory->mappings--;
        physical_drop(memory);
    }
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuMemSetAccess(CUdeviceptr pointer, size_t size,
                                      const tempi_emu_access *access, size_t n);
CUresult TEMPI_EMU_API cuMemSetAccess(CUdeviceptr pointer, size_t size,
                                      const tempi_emu_access *access, size_t n)
{
    const CUresult result = tempi_emu_enter(EMU_cuMemSetAccess, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    tempi_emu_range *range = next_mapping(pointer, pointer + size);
    if (range == NULL || range->base != pointer)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < n; i++)
        if (!on_device(&access[i].location))
            return tempi_emu_leave(CUDA_ERROR_INVALID_DEVICE);
    for (; range != NULL; range = next_mapping(range->base + range->size, pointer + size)) {
        for (size_t i = 0; i < n; i++) {
            const unsigned bit = 1u << access[i].location.id;
            range->readable = access[i].flags != 0 ? range->readable | bit : range->readable & ~bit;
        }
    }
    return tempi_emu_leave(CUDA_SUCCESS);
}
