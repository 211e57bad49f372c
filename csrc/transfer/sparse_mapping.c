/* sparse_mapping.c: finds one shift at which all segments fit.
 *
 * 1. Merge segments that are close to each other, so that there are few.
 * 2. Try the shift that fitted last, then others: small ones first, up and down in turn, since the
 *    neighbourhood of a program's mappings is mostly free.
 * 3. Map every segment at its shifted address, if that is free; else unmap all and try the next
 *    shift.
 * 4. Where none fits, try finer shifts of segments merged less. A program that is not position
 *    independent has its heap near address 0 and other memory near the last one: then all shifts
 *    that fit are shorter than the room above the latter, which may be a few GiB. */
#include "transfer/sparse_mapping.h"
#include "base/log.h"
#include "tempi.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000 /* Linux 4.17; older kernels treat the address as a hint */
#endif

/* Of shifts: so that they reach across all of an address space of 47 bits in steps of 64 GiB, as
 * CUDA, sanitizers and others reserve many TiB of it in one piece; in finer steps, across 8 TiB to
 * 32 GiB. LOWEST: as low as Linux lets a process map (vm.mmap_min_addr is 64 KiB). */
enum { PAGE = 4096, TRIES = 4096, FINER = 16, CLOSE = 16 << 20, LOWEST = 1 << 16 };
#define NEAR ((int64_t)1 << 36)

static _Atomic int64_t fitted_last;

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

/* Merges sorted segments at most that far apart; returns how many are left. */
static int merge(tempi_reach *of, int all, int64_t apart)
{
    int n = 0;
    for (int i = 0; i < all; ++i) {
        tempi_reach *last = n > 0 ? &of[n - 1] : NULL;
        if (!last || of[i].low - last->high > apart)
            of[n++] = of[i];
        else if (of[i].high > last->high)
            last->high = of[i].high;
    }
    return n;
}

int tempi_sparse_join(tempi_sparse *sparse)
{
    if (sparse->n > 1)
        qsort(sparse->of, (size_t)sparse->n, sizeof *sparse->of, by_address);
    const int fine = merge(sparse->of, sparse->n, CLOSE);
    tempi_reach *copy = fine > 1 ? malloc((size_t)fine * sizeof *copy) : NULL;
    if (copy)
        memcpy(copy, sparse->of, (size_t)fine * sizeof *copy);
    free(sparse->fine);
    sparse->fine = copy;
    sparse->nfine = copy ? fine : 0;
    sparse->n = merge(sparse->of, fine, NEAR);
    return sparse->n;
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
    if (__builtin_add_overflow(of->low, shift, &low) || low < LOWEST)
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

/* The largest segment: by a shorter shift it overlaps itself. */
static int64_t step_of(const tempi_sparse *sparse, int64_t least)
{
    int64_t step = least;
    for (int i = 0; i < sparse->n; ++i)
        while (step < sparse->of[i].high - sparse->of[i].low)
            step *= 2;
    return step;
}

static bool map_in_steps(tempi_sparse *sparse, int64_t step)
{
    for (int i = 0; i < TRIES; ++i) {
        int64_t shift;
        if (__builtin_mul_overflow(i % 2 ? i / 2 + 1 : -i / 2 - 1, step, &shift))
            break;
        if (map_all(sparse, shift)) {
            sparse->shift = shift;
            return true;
        }
    }
    return false;
}

static void take_fine(tempi_sparse *sparse)
{
    if (!sparse->fine)
        return;
    free(sparse->of);
    sparse->of = sparse->fine;
    sparse->n = sparse->room = sparse->nfine;
    sparse->fine = NULL;
}

static bool find(tempi_sparse *sparse)
{
    const int64_t last = atomic_load_explicit(&fitted_last, memory_order_relaxed);
    if (last && map_all(sparse, last)) {
        sparse->shift = last;
        return true;
    }
    if (map_in_steps(sparse, step_of(sparse, NEAR)))
        return true;
    take_fine(sparse);
    for (int64_t least = NEAR / FINER; least >= CLOSE; least /= FINER)
        if (map_in_steps(sparse, step_of(sparse, least)))
            return true;
    return false;
}

int tempi_sparse_map(tempi_sparse *sparse)
{
    if (find(sparse)) {
        atomic_store_explicit(&fitted_last, sparse->shift, memory_order_relaxed);
        return TEMPI_OK;
    }
    TEMPI_WARN_ONCE(
        "no room for host memory that stands for %d segments of addresses, the first at "
        "%#llx, the last at %#llx",
        sparse->n, (unsigned long long)sparse->of[0].low,
        (unsigned long long)sparse->of[sparse->n - 1].low);
    return TEMPI_ERR_MEMORY;
}

void tempi_sparse_close(tempi_sparse *sparse)
{
    if (sparse->shift)
        unmap(sparse, sparse->n, sparse->shift);
    free(sparse->of);
    free(sparse->fine);
    *sparse = (tempi_sparse){.n = 0};
}
