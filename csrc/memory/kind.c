#include "memory/kind.h"
#include "base/log.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

bool tempi_memory_mixed;

static bool amd_gpu;

/* cuda.h: CU_POINTER_ATTRIBUTE_MEMORY_TYPE; its answers. Any other result: not known to CUDA. */
enum { ATTRIBUTE_MEMORY_TYPE = 2, MEMORYTYPE_DEVICE = 2 };
typedef int (*pointer_attribute)(void *data, int attribute, unsigned long long pointer);

void tempi_memory_start(void)
{
    amd_gpu = access("/dev/kfd", F_OK) == 0;
    tempi_memory_mixed = amd_gpu || access("/dev/nvidiactl", F_OK) == 0;
}

/* The program's own driver, once it has loaded one; tempi never loads it itself. */
static pointer_attribute driver_query(void)
{
    static pointer_attribute found;
    pointer_attribute query = __atomic_load_n(&found, __ATOMIC_RELAXED);
    if (query)
        return query;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!driver)
        return NULL;
    *(void **)&query = dlsym(driver, "cuPointerGetAttribute");
    __atomic_store_n(&found, query, __ATOMIC_RELAXED);
    return query;
}

static bool amd_runtime_loaded(void)
{
    void *runtime = dlopen("libamdhip64.so", RTLD_LAZY | RTLD_NOLOAD);
    if (!runtime)
        runtime = dlopen("libhsa-runtime64.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (runtime)
        dlclose(runtime);
    return runtime != NULL;
}

tempi_memory_kind tempi_memory_ask(const void *address)
{
    if (amd_gpu && amd_runtime_loaded()) {
        TEMPI_WARN_ONCE("this program uses AMD's GPU run-time: all messages are left to MPI");
        return TEMPI_MEMORY_FOREIGN;
    }
    const pointer_attribute query = driver_query();
    unsigned type = 0;
    if (query && query(&type, ATTRIBUTE_MEMORY_TYPE, (unsigned long long)(uintptr_t)address) == 0 &&
        type == MEMORYTYPE_DEVICE)
        return TEMPI_MEMORY_FOREIGN;
    return TEMPI_MEMORY_HOST;
}
