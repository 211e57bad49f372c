#include "cuda/pinned.h"

#include <sys/mman.h>

enum { FLAGS = TEMPI_CUDA_HOST_PORTABLE | TEMPI_CUDA_HOST_MAPPED };

static int register_new(int64_t bytes, void **out)
{
    void *made = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                      0);
    if (made == MAP_FAILED)
        return TEMPI_ERR_MEMORY;
    const int status = TEMPI_CU(MemHostRegister, made, (size_t)bytes, FLAGS);
    if (status == TEMPI_OK)
        *out = made;
    else
        munmap(made, (size_t)bytes);
    return status;
}

int tempi_cuda_pinned_new(tempi_cuda_device *device, int64_t bytes, void **out, bool *registered)
{
    tempi_cuda_entry entry;
    int status = tempi_cuda_enter_relaxed(device, &entry);
    if (status != TEMPI_OK)
        return status;
    *registered = device->same_addresses && tempi_cu.MemHostRegister && tempi_cu.MemHostUnregister;
    status = *registered ? register_new(bytes, out)
                         : TEMPI_CU(MemHostAlloc, out, (size_t)bytes, FLAGS);
    tempi_cuda_leave(&entry);
    return status;
}

void tempi_cuda_pinned_free(tempi_cuda_device *device, void *address, int64_t bytes,
                            bool registered)
{
    tempi_cuda_entry entry;
    if (device && tempi_cuda_up() && tempi_cuda_enter_relaxed(device, &entry) == TEMPI_OK) {
        if (registered)
            (void)TEMPI_CU(MemHostUnregister, address);
        else
            (void)TEMPI_CU(MemFreeHost, address);
        tempi_cuda_leave(&entry);
    }
    tempi_cuda_pinned_drop(address, bytes, registered);
}

void tempi_cuda_pinned_drop(void *address, int64_t bytes, bool registered)
{
    if (registered)
        munmap(address, (size_t)bytes);
}
