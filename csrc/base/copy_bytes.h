/* Copying contiguous bytes where the C library's memcpy is slow.
 *
 * Zen 3 copies by `rep movsb`, which glibc 2.36 takes from about 2 KiB on, 28 times as slowly as
 * otherwise if the destination lies 1 to 31 bytes behind the source, modulo 4096: 3 KiB take 1.6 us
 * instead of 60 ns, 16 KiB 8.2 us instead of 0.3. Zen 4 does if it lies 1 to 15 bytes behind (0.86
 * us instead of 34 ns, 4.6 instead of 0.15): see glibc's bug 30994. */
#ifndef TEMPI_BASE_COPY_BYTES_H
#define TEMPI_BASE_COPY_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { TEMPI_COPY_BY_WORDS = 2048 /* bytes: not more go without `rep movsb` */ };

static inline bool tempi_copies_collide(const void *dst, const void *src)
{
    return (((uintptr_t)dst - (uintptr_t)src - 1) & 4095) < 31;
}

/* As memcpy, but not slower there. */
static inline void tempi_copy_bytes(void *dst, const void *src, size_t n)
{
    if (n > TEMPI_COPY_BY_WORDS && tempi_copies_collide(dst, src)) {
        for (; n > TEMPI_COPY_BY_WORDS; n -= TEMPI_COPY_BY_WORDS) {
            memcpy(dst, src, TEMPI_COPY_BY_WORDS);
            dst = (char *)dst + TEMPI_COPY_BY_WORDS;
            src = (const char *)src + TEMPI_COPY_BY_WORDS;
        }
    }
    memcpy(dst, src, n);
}

/* What received bytes begin at, modulo 64, if the memory is otherwise aligned so: 32 if this
 * processor's copies collide, else 0. An MPI library copies what is sent to a place of its own
 * and from there to the receiver. Its places are, modulo 64, 62 (Open MPI), 32 (MPICH) or 16
 * (Open MPI without CMA): so neither of the two copies collides if what is sent begins at 0 and
 * what is received at 32; nor one from there to an array that malloc has made, at 16. */
enum { TEMPI_COPY_SHIFT_MOST = 32 };
int64_t tempi_copy_shift(int64_t bytes);

#endif
