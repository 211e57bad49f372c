/* Large blocks of memory. */
#ifndef TEMPI_BASE_ALLOCATE_H
#define TEMPI_BASE_ALLOCATE_H

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Returns a block that is at least 64-byte aligned; free() frees it. Large blocks ask for huge
 * pages: they are traversed once at a time, so with small pages each page costs a fault first and a
 * TLB miss later. */
static inline void *tempi_allocate(size_t bytes)
{
    enum { LINE = 64, HUGE_PAGE = 2 << 20 };
    if (bytes > SIZE_MAX - HUGE_PAGE)
        return NULL;
    if (bytes < HUGE_PAGE)
        return aligned_alloc(LINE, (bytes + LINE - 1) / LINE * LINE);
    const size_t whole = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    void *block = aligned_alloc(HUGE_PAGE, whole);
    if (block)
        madvise(block, whole, MADV_HUGEPAGE); /* advice: kernels without huge pages ignore it */
    return block;
}

/* The same with malloc's alignment only, for arrays that are mostly short. */
static inline void *tempi_allocate_array(size_t bytes)
{
    enum { LARGE = 2 << 20 };
    return bytes < LARGE ? malloc(bytes) : tempi_allocate(bytes);
}

#endif
