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

/* Of shifts: so that they reach across all of an address space of 47 bits in steps of 64 GiB, as
 * CUDA, sanitizers and others reserve many TiB of it in one piece. */
enum { PAGE = 4096, TRIES = 4096 };
#define NEAR ((int64_t)1 << 36)

int tempi_sparse_add(tempi_sparse *sparse, int64_t low, int64_t high)
{
    if (sparse->n == sparse->room) {
        const int room = sparse->room ? 2 * sparse->room : 8;
        tempi_reach *more = realloc(sparse->of, (size_t)room * sizeof *more);
        if (!more)
            return TEMPI_ERR_MEMORY;
        sparse->of = more;
        sparse->room = room;
    }
    sparse->of[sparse->n++] = (tempi_reach){low & -PAGE, (high + PAGE - 1) & -PAGE};
    return TEMPI_OK;
}

static int by_address(const void *a, const void *b)
{
    const tempi_reach *one = a, *other = b;
    return one->low < other->low ? -1 : one->low > other->low;
}

int tempi_sparse_join(tempi_sparse *sparse)
{
    int n = 0;
    if (sparse->n > 1)
        qsort(sparse->of, (size_t)sparse->n, sizeof *sparse->of, by_address);
    for (int i = 0; i < sparse->n; ++i) {
        tempi_reach *last = n > 0 ? &sparse->of[n - 1] : NULL;
        if (!last || sparse->of[i].low - last->high > NEAR)
            sparse->of[n++] = sparse->of[i];
        else if (sparse->of[i].high > last->high)
            last->high = sparse->of[i].high;
    }
    sparse->n = n;
    return n;
}

static void unmap(const tempi_sparse *sparse, int n, int64_t shift)
{
    for (int i = 0; i < n; ++i)
        munmap((void *)(uintptr_t)(sparse->of[i].low + shift),
               (size_t)(sparse->of[i].high - sparse->of[i].low));
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

static bool map_all(const tempi_sparse *sparse, int64_t shift)
{
    for (int i = 0; i < sparse->n; ++i)
        if (!map_at(&sparse->of[i], shift)) {
            unmap(sparse, i, shift);
            return false;
        }
    return true;
}

/* The largest segment, at least 64 GiB: a smaller shift could overlap the segments themselves. */
static int64_t step_of(const tempi_sparse *sparse)
{
    int64_t step = NEAR;
    for (int i = 0; i < sparse->n; ++i)
        while (step < sparse->of[i].high - sparse->of[i].low)
            step *= 2;
    return step;
}

int tempi_sparse_map(tempi_sparse *sparse)
{
    const int64_t step = step_of(sparse);
    for (int i = 0; i < TRIES; ++i) {
        int64_t shift;
        if (__builtin_mul_overflow(i % 2 ? i / 2 + 1 : -i / 2 - 1, step, &shift))
            break;
        if (map_all(sparse, shift)) {
            sparse->shift = shift;
            return TEMPI_OK;
        }
    }
    return TEMPI_ERR_MEMORY;
}

void tempi_sparse_close(tempi_sparse *sparse)
{
    if (sparse->shift)
        unmap(sparse, sparse->n, sparse->shift);
    free(sparse->of);
    *sparse = (tempi_sparse){.n = 0};
}
