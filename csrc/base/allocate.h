/* Large blocks of memory. */
#ifndef TEMPI_BASE_ALLOCATE_H
#define TEMPI_BASE_ALLOCATE_H

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

/* At least 64-byte aligned; freed by free(). Large blocks ask for huge pages: what is in them is
 * walked once at a time, so with small pages each is a fault first and a miss later. */
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
        madvise(block, whole, MADV_HUGEPAGE); /* advice: a kernel without them is no error */
    return block;
}

/* The same with no alignment beyond malloc's, for arrays that are mostly short. */
static inline void *tempi_allocate_array(size_t bytes)
{
    enum { LARGE = 2 << 20 };
    return bytes < LARGE ? malloc(bytes) : tempi_allocate(bytes);
}

#endif
