/* memory.c: the kinds of memory for the fields. */
#include "cuda.h"
#include "halo.h"

#include <stdlib.h>
#include <string.h>

static void *host_allocate(size_t bytes)
{
    void *data = NULL;
    return posix_memalign(&data, 4096, bytes) == 0 ? data : NULL;
}

static const struct memory_kind kinds[] = {
    {.name = "host",
     .allocate = host_allocate,
     .release = free,
     .staging = checked_alloc,
     .staging_release = free},
    {.name = "device",
     .start = cuda_start,
     .allocate = cuda_allocate,
     .release = cuda_release,
     .staging = cuda_pinned_allocate,
     .staging_release = cuda_pinned_release,
     .copy = cuda_copy},
};

const struct memory_kind *memory_kind_find(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    return NULL;
}

void *checked_alloc(size_t bytes)
{
    void *p = calloc(bytes > 0 ? bytes : 1, 1);
    if (!p)
        fail("no memory for %zu bytes", bytes);
    return p;
}
