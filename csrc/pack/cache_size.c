/* cache_size.c: the size of the last-level cache, read once. */
#include "pack/nest.h"

#include <stdatomic.h>
#include <stdio.h>

enum { USUAL_BYTES = 32 << 20 };

/* The size by the kernel; the C library's is wrong in virtual machines. 0: unknown. */
static int64_t cache_read(void)
{
    static const char path[] = "/sys/devices/system/cpu/cpu0/cache/index3/size";
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    long kib = 0;
    const int found = fscanf(file, "%ldK", &kib);
    fclose(file);
    return found == 1 ? (int64_t)kib * 1024 : 0;
}

static _Atomic int64_t cache_known;

int64_t tempi_cache_bytes(void)
{
    int64_t bytes = atomic_load_explicit(&cache_known, memory_order_relaxed);
    if (bytes > 0)
        return bytes;
    bytes = cache_read();
    if (bytes <= 0)
        bytes = USUAL_BYTES;
    atomic_store_explicit(&cache_known, bytes, memory_order_relaxed);
    return bytes;
}

void tempi_cache_assume(int64_t bytes)
{
    atomic_store_explicit(&cache_known, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&tempi_kernels_epoch, 1, memory_order_relaxed);
}
