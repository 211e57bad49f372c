/* cu_range.c: attributes of ranges, for managed memory and, on devices that access pageable memory
 * (CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS: Grace Hopper, HMM), for memory of the system. */
#include "emulator/core/emulator.h"

#include <stdlib.h>

enum { CPU = -1, UNKNOWN = -2 };
enum { PREFERRED_LOCATION = 2, LAST_PREFETCH_LOCATION = 4 };

/* Where a test says that pageable memory is, or is to be. */
typedef struct {
    uint64_t base, size;
    int device, attribute;
} location;

static location *locations;
static size_t count;

bool tempi_emu_pageable_access(uint64_t address)
{
    return tempi_emu_option.pageable_access && !tempi_emu_space_holds(address);
}

static int note(uint64_t address, uint64_t size, int device, int attribute)
{
    tempi_emu_lock();
    location *const more = realloc(locations, (count + 1) * sizeof *more);
    if (more != NULL) {
        locations = more;
        locations[count++] = (location){address, size, device, attribute};
    }
    tempi_emu_unlock();
    return more == NULL;
}

TEMPI_EMU_API int tempi_emulator_locate(uint64_t address, uint64_t size, int device);
/* Says that pageable memory was last prefetched to a device; CPU: to the host. 0: noted. */
TEMPI_EMU_API int tempi_emulator_locate(uint64_t address, uint64_t size, int device)
{
    return note(address, size, device, LAST_PREFETCH_LOCATION);
}

TEMPI_EMU_API int tempi_emulator_prefer(uint64_t address, uint64_t size, int device);
/* Says that pageable memory is to be on a device (cuMemAdvise, preferred location), likewise. */
TEMPI_EMU_API int tempi_emulator_prefer(uint64_t address, uint64_t size, int device)
{
    return note(address, size, device, PREFERRED_LOCATION);
}

/* The latest one that holds. */
static int location_of(uint64_t address, int attribute)
{
    for (size_t i = count; i-- > 0;)
        if (locations[i].attribute == attribute && address - locations[i].base < locations[i].size)
            return locations[i].device;
    return UNKNOWN;
}

CUresult TEMPI_EMU_API cuMemRangeGetAttribute(void *data, size_t size, int attribute,
                                              CUdeviceptr address, size_t bytes);
CUresult TEMPI_EMU_API cuMemRangeGetAttribute(void *data, size_t size, int attribute,
                                              CUdeviceptr address, size_t bytes)
{
    const CUresult result = tempi_emu_enter(EMU_cuMemRangeGetAttribute, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    const tempi_emu_range *const range = tempi_emu_range_find(address);
    const bool good = range != NULL ? range->kind == EMU_MANAGED
                                    : tempi_emu_pageable_access(address);
    if (!good || data == NULL || size != sizeof(int) || bytes == 0 ||
        (attribute != PREFERRED_LOCATION && attribute != LAST_PREFETCH_LOCATION))
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    const int found = location_of(address, attribute);
    memcpy(data, &found, sizeof found);
    return tempi_emu_leave(CUDA_SUCCESS);
}
