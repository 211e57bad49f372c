/* cache_size.c: what this process may have of the machine's caches, read once. */
#include "base/text.h"
#include "pack/nest.h"

#include <stdatomic.h>
#include <stdlib.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum {
    USUAL_BYTES = 32 << 20,
    USUAL_CORE_BYTES = 512 << 10,
    /* For each processor of a virtual machine. One of few is told the size of a cache that it
     * shares with many others; most processors have 1 to 5 MiB for each core. */
    CORE_BYTES = 16 << 20
};

#define CACHES  "/sys/devices/system/cpu/cpu0/cache/"
#define LEVEL_2 CACHES "index2/"
#define LEVEL_3 CACHES "index3/"

/* A size by the kernel; the C library's is wrong in virtual machines. 0: unknown. */
static int64_t size_read(const char *file)
{
    char text[32];
    return tempi_text_read(file, text, sizeof text) ? atoll(text) * 1024 : 0;
}

static bool is_virtual(void)
{
#if defined(__x86_64__)
    const unsigned hypervisor = 1U << 31;
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & hypervisor) != 0;
#else
    return false; /* unknown */
#endif
}

/* Processors that share it, by the bits of the kernel's mask, in hexadecimal; 0: unknown. */
static int64_t cache_sharers(void)
{
    char text[4096] = "";
    int64_t sharers = 0;
    (void)tempi_text_read(LEVEL_3 "shared_cpu_map", text, sizeof text);
    for (char *at = text; *at; at += *at != 0)
        sharers += __builtin_popcountl(strtoul(at, &at, 16));
    return sharers;
}

static int64_t cache_share(void)
{
    const int64_t bytes = size_read(LEVEL_3 "size"),
                  most = is_virtual() ? cache_sharers() * CORE_BYTES : 0;
    return most > 0 && most < bytes ? most : bytes;
}

static int64_t core_cache(void)
{
    return size_read(LEVEL_2 "size");
}

static int64_t known(_Atomic int64_t *once, int64_t (*find)(void), int64_t usual)
{
    int64_t bytes = atomic_load_explicit(once, memory_order_relaxed);
    if (bytes > 0)
        return bytes;
    bytes = find();
    if (bytes <= 0)
        bytes = usual;
    atomic_store_explicit(once, bytes, memory_order_relaxed);
    return bytes;
}

static _Atomic int64_t cache_known, core_cache_known;

int64_t tempi_cache_bytes(void)
{
    return known(&cache_known, cache_share, USUAL_BYTES);
}

int64_t tempi_core_cache_bytes(void)
{
    return known(&core_cache_known, core_cache, USUAL_CORE_BYTES);
}

void tempi_cache_assume(int64_t bytes)
{
    atomic_store_explicit(&cache_known, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&tempi_kernels_epoch, 1, memory_order_relaxed);
}

void tempi_core_cache_assume(int64_t bytes)
{
    atomic_store_explicit(&core_cache_known, bytes, memory_order_relaxed);
}
