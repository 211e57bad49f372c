#include "base/copy_bytes.h"
#include "base/clock.h"

#include <stdlib.h>

enum { PAGE = 4096, BYTES = 3072, TIMES = 5, SHIFT = TEMPI_COPY_SHIFT_MOST };

/* Nanoseconds, of the fastest of some. */
static int64_t copy_takes(char *dst, const char *src)
{
    int64_t best = INT64_MAX;
    size_t n = BYTES;
    /* Hidden from the compiler, which would copy a length that it knows by instructions of its own,
     * which do not collide. */
    __asm__ volatile("" : "+r"(n));
    for (int i = 0; i < TIMES; ++i) {
        const int64_t start = tempi_clock_ns();
        memcpy(dst, src, n);
        __asm__ volatile("" ::"r"(dst) : "memory");
        const int64_t taken = tempi_clock_ns() - start;
        best = taken < best ? taken : best;
    }
    return best;
}

/* At the distance between Open MPI's places and 64, which collides on each such processor, and at
 * the one between a page and malloc's arrays, which does not on Zen 4. Within some 20 us. */
static bool collisions_cost(void)
{
    enum { FACTOR = 4, NEAR = 2, FAR = SHIFT / 2 };
    char *memory = aligned_alloc(PAGE, 3 * (size_t)PAGE);
    if (!memory)
        return false;
    memset(memory, 0, 3 * (size_t)PAGE);
    char *const behind = memory + 2 * PAGE;
    const int64_t apart = copy_takes(behind + SHIFT, memory),
                  near = copy_takes(behind + NEAR, memory), far = copy_takes(behind + FAR, memory),
                  colliding = near > far ? near : far;
    free(memory);
    return colliding > FACTOR * apart;
}

int64_t tempi_copy_shift(int64_t bytes)
{
    enum { UNKNOWN, NONE, SHIFTED };
    static int known;
    if (bytes <= TEMPI_COPY_BY_WORDS)
        return 0;
    int now = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (now == UNKNOWN) {
        now = collisions_cost() ? SHIFTED : NONE;
        __atomic_store_n(&known, now, __ATOMIC_RELAXED);
    }
    return now == SHIFTED ? SHIFT : 0;
}
