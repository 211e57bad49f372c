/* cache_size.c: how much of the last-level cache this machine may have, read once. */
#include "pack/nest.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    USUAL_BYTES = 32 << 20,
    /* No processor has more for each core. A virtual machine of few cores is told the size of a
     * cache that it shares with many others. */
    CORE_BYTES = 16 << 20
};

#define CACHE "/sys/devices/system/cpu/cpu0/cache/index3/"

/* Its size by the kernel; the C library's is wrong in virtual machines. 0: unknown. */
static int64_t cache_read(void)
{
    FILE *file = fopen(CACHE "size", "re");
    if (!file)
        return 0;
    long kib = 0;
    const int found = fscanf(file, "%ldK", &kib);
    fclose(file);
    return found == 1 ? (int64_t)kib * 1024 : 0;
}

/* Processors that share it, by the bits of the kernel's mask, in hexadecimal; 0: unknown. */
static int64_t cache_sharers(void)
{
    FILE *file = fopen(CACHE "shared_cpu_map", "re");
    int64_t sharers = 0;
    if (!file)
        return 0;
    for (int digit; (digit = fgetc(file)) != EOF;) {
        const char text[] = {(char)digit, 0};
        sharers += __builtin_popcountl(strtoul(text, NULL, 16));
    }
    fclose(file);
    return sharers;
}

static int64_t cache_share(void)
{
    const int64_t bytes = cache_read(), most = cache_sharers() * CORE_BYTES;
    return most > 0 && most < bytes ? most : bytes;
}

static _Atomic int64_t cache_known;

int64_t tempi_cache_bytes(void)
{
    int64_t bytes = atomic_load_explicit(&cache_known, memory_order_relaxed);
    if (bytes > 0)
        return bytes;
    bytes = cache_share();
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
