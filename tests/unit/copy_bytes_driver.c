/* copy_bytes_driver.c: copies that collide, with a made-up clock and a made-up memcpy; for the
 * sanitizers and for test_copy_bytes.py.
 *
 *     copy_bytes_driver SLOWER LAST   copies that collide, whose destination lies 1 to LAST bytes
 *                                     behind the source, take so many times as long as others;
 *                                     prints the shift of 2048 and of 2049 received bytes, and how
 *                                     often memcpy was called to find that out
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static long now, slower, last;
static int calls, colliding, longest;

static int made_up(clockid_t clock, struct timespec *out)
{
    (void)clock;
    *out = (struct timespec){.tv_nsec = now};
    return 0;
}

static void *real_memcpy(void *dst, const void *src, size_t n)
{
    return memcpy(dst, src, n);
}

static void *made_up_memcpy(void *dst, const void *src, size_t n)
{
    const long behind = (long)(((uintptr_t)dst - (uintptr_t)src) % 4096);
    const int collides = n > 2048 && behind >= 1 && behind <= last;
    ++calls;
    colliding += collides;
    longest = (int)n > longest ? (int)n : longest;
    now += 60 * (collides ? slower : 1);
    return real_memcpy(dst, src, n);
}

#define clock_gettime made_up
#define memcpy        made_up_memcpy
#include "base/copy_bytes.c"

static unsigned char memory[5 * 4096], image[5 * 4096];

static void fill(void)
{
    for (size_t i = 0; i < sizeof memory; ++i)
        memory[i] = image[i] = (unsigned char)(i * 31 + i / 256);
}

/* Exactly these bytes arrive, and no call collides. */
static void check_copy(size_t from, size_t to, size_t n)
{
    fill();
    real_memcpy(image + to, memory + from, n);
    tempi_copy_bytes(memory + to, memory + from, n);
    if (memcmp(memory, image, sizeof memory) != 0 || colliding != 0) {
        printf("%zu to %zu, %zu bytes\n", from, to, n);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    (void)argc;
    slower = atol(argv[1]);
    last = atol(argv[2]);
    const int64_t none = tempi_copy_shift(2048), some = tempi_copy_shift(2049);
    const int asked = calls;
    if (tempi_copy_shift(1 << 20) != some || calls != asked)
        return 1; /* it is remembered */
    colliding = 0;
    static const size_t lengths[] = {0, 1, 2048, 2049, 4095, 4096, 6144, 8000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; ++i)
        for (size_t behind = 0; behind < 40; ++behind)
            check_copy(100, 2 * 4096 + 100 + behind, lengths[i]);
    longest = 0;
    tempi_copy_bytes(memory + 2 * 4096, memory, 8000);
    if (longest != 8000)
        return 1; /* others go as a whole */
    printf("%d %d %d\n", (int)none, (int)some, asked);
    return 0;
}
