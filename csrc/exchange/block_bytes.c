#include "exchange/block_bytes.h"

#if defined(__x86_64__)
#include <emmintrin.h>

enum { LINE = 64, PIECE = 8 << 10 /* stays in the first-level cache */ };

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* `to` is aligned to a line, n is a multiple of one. */
static void stream_lines(char *to, const char *from, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16)
        _mm_stream_si128((__m128i *)(void *)(to + i),
                         _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
}

static void stream(char *to, const char *from, int64_t n)
{
    const int64_t head = least(n, (int64_t)(-(uintptr_t)to & (LINE - 1)));
    const int64_t lines = (n - head) / LINE * LINE;
    memcpy(to, from, (size_t)head);
    stream_lines(to + head, from + head, lines);
    memcpy(to + head + lines, from + head + lines, (size_t)(n - head - lines));
}

void tempi_block_pack_nontemporal(const tempi_op *block, int64_t first, int64_t n, char *packed)
{
    _Alignas(64) char piece[PIECE];
    for (int64_t done = 0, part; done < n && block->layout; done += part) {
        part = least(n - done, PIECE);
        tempi_block_pack(block, first + done, part, piece);
        stream(packed + done, piece, part);
    }
    if (!block->layout)
        stream(packed, (const char *)block->mem + first, n);
    _mm_sfence(); /* before what tells the other core that they are there */
}
#else
void tempi_block_pack_nontemporal(const tempi_op *block, int64_t first, int64_t n, char *packed)
{
    tempi_block_pack(block, first, n, packed);
}
#endif
