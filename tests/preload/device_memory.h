/* Memory of the emulated CUDA device, for C programs of these tests. DEVICE_LIBRARY names the
 * driver. */
#ifndef DEVICE_MEMORY_H
#define DEVICE_MEMORY_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* CUstream of the legacy default stream. */
#define LEGACY ((void *)1)

static void *device_library;

static void *cu(const char *name)
{
    void *found = dlsym(device_library, name);
    if (!found) {
        printf("BAD no %s\n", name);
        exit(3);
    }
    return found;
}

/* A driver call as cuda.h names it; every argument in its own type. */
#define CU(name, ...) ((int (*)())cu(#name))(__VA_ARGS__)
#define CU_MUST(name, ...)                                    \
    do {                                                      \
        const int result = CU(name, __VA_ARGS__);             \
        if (result != 0) {                                    \
            printf("BAD %s: CUDA error %d\n", #name, result); \
            exit(3);                                          \
        }                                                     \
    } while (0)

static void device_load(void)
{
    device_library = dlopen(getenv("DEVICE_LIBRARY"), RTLD_NOW | RTLD_GLOBAL);
    if (!device_library) {
        printf("BAD %s\n", dlerror());
        exit(3);
    }
}

static void *device_context(int ordinal)
{
    void *context = NULL;
    CU_MUST(cuDevicePrimaryCtxRetain, &context, ordinal);
    return context;
}

/* CUDA initialised, the first device's context current, or with DEVICE_OWN_CONTEXT one that is made
 * here. */
static void device_begin(void)
{
    void *made = NULL;
    device_load();
    CU_MUST(cuInit, 0u);
    if (getenv("DEVICE_OWN_CONTEXT"))
        CU_MUST(cuCtxCreate_v2, &made, 0u, 0);
    else
        CU_MUST(cuCtxSetCurrent, device_context(0));
}

static void *device_new(size_t n)
{
    uint64_t made = 0;
    CU_MUST(cuMemAlloc_v2, &made, n);
    return (void *)(uintptr_t)made;
}

static void device_delete(void *there)
{
    (void)CU(cuMemFree_v2, (uint64_t)(uintptr_t)there);
}

/* Both report a device that is gone. */
static int device_write(void *there, const void *here, size_t n)
{
    return CU(cuMemcpyHtoD_v2, (uint64_t)(uintptr_t)there, here, n) == 0;
}

static int device_read(void *here, const void *there, size_t n)
{
    return CU(cuMemcpyDtoH_v2, here, (uint64_t)(uintptr_t)there, n) == 0;
}

#endif
