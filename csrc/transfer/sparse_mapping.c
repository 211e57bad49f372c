/* sparse_mapping.c: finds one shift at which all segments fit.
 *
 * 1. Merge segments that are close to each other.
 * 2. Try shifts: small ones first, up and down in turn, since the neighbourhood of a program's
 *    mappings is mostly free.
 * 3. Map every segment at its shifted address, if that is free; else unmap all and try the next
 *    shift. */
#include "transfer/sparse_mapping.h"
#include "tempi.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000 /* Linux 4.17; older kernels treat the address as a hint */
#endif

enum { PAGE = 4096, TRIES = 256 };
#define NEAR ((int64_t)1 << 36)

int tempi_sparse_add(tempi_sparse *apart, int64_t low, int64_t high)
{
    if (apart->n == apart->room) {
        const int room = apart->room ? 2 * apart->room : 8;
        tempi_reach *more = realloc(apart->of, (size_t)room * sizeof *more);
        if (!more)
            return TEMPI_ERR_MEMORY;
        apart->of = more;
        apart->room = room;
    }
    apart->of[apart->n++] = (tempi_reach){low & -PAGE, (high + PAGE - 1) & -PAGE};
    return TEMPI_OK;
}

static int by_address(const void *a, const void *b)
{
    const tempi_reach *one = a, *other = b;
    return one->low < other->low ? -1 : one->low > other->low;
}

int tempi_sparse_join(tempi_sparse *apart)
{
    int n = 0;
    if (apart->n > 1)
        qsort(apart->of, (size_t)apart->n, sizeof *apart->of, by_address);
    for (int i = 0; i < apart->n; ++i) {
        tempi_reach *last = n > 0 ? &apart->of[n - 1] : NULL;
        if (!last || apart->of[i].low - last->high > NEAR)
            apart->of[n++] = apart->of[i];
        else if (apart->of[i].high > last->high)
            last->high = apart->of[i].high;
    }
    apart->n = n;
    return n;
}

static void unmap(const tempi_sparse *apart, int n, int64_t shift)
{
    for (int i = 0; i < n; ++i)
        munmap((void *)(uintptr_t)(apart->of[i].low + shift),
               (size_t)(apart->of[i].high - apart->of[i].low));
}

static bool map_at(const tempi_reach *of, int64_t shift)
{
    int64_t low;
    if (__builtin_add_overflow(of->low, shift, &low) || low < NEAR)
        return false;
    void *const wanted = (void *)(uintptr_t)low;
    const size_t size = (size_t)(of->high - of->low);
    void *got = mmap(wanted, size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == wanted)
        return true;
    if (got != MAP_FAILED)
        munmap(got, size);
    return false;
}

static bool map_all(const tempi_sparse *apart, int64_t shift)
{
    for (int i = 0; i < apart->n; ++i)
        if (!map_at(&apart->of[i], shift)) {
            unmap(apart, i, shift);
            return false;
        }
    return true;
}

/* The largest segment, at least 64 GiB: a smaller shift could overlap the segments themselves. */
static int64_t step_of(const tempi_sparse *apart)
{
    int64_t step = NEAR;
    for (int i = 0; i < apart->n; ++i)
        while (step < apart->of[i].high - apart->of[i].low)
            step *= 2;
    return step;
}

int tempi_sparse_map(tempi_sparse *apart)
{
    const int64_t step = step_of(apart);
    for (int i = 0; i < TRIES; ++i) {
        int64_t shift;
        if (__builtin_mul_overflow(i % 2 ? i / 2 + 1 : -i / 2 - 1, step, &shift))
            break;
        if (map_all(apart, shift)) {
            apart->shift = shift;
            return TEMPI_OK;
        }
    }
    return TEMPI_ERR_MEMORY;
}

void tempi_sparse_close(tempi_sparse *apart)
{
    if (apart->shift)
        unmap(apart, apart->n, apart->shift);
    free(apart->of);
    *apart = (tempi_sparse){.n = 0};
}
