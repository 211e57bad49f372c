/* exchange_blocks.h: random blocks of exchange_driver.c. */
#ifndef TEMPI_TEST_EXCHANGE_BLOCKS_H
#define TEMPI_TEST_EXCHANGE_BLOCKS_H

#include "datatype/layout.h"
#include "exchange/exchange.h"
#include "exchange/mapped.h"
#include "members.h"

enum { PARTS = 40, GUARD = 64, POISON = 0xA5 };

/* Often one that longer runs divide. */
static int64_t draw_bytes(dice *d)
{
    static const int64_t sizes[] = {0,    1,    63,    64,    65,    448,   960,    1024,  4032,
                                    4096, 6144, 12288, 16384, 24576, 49152, 100000, 196608};
    if (draw(d, 0, 3) == 0)
        return draw(d, 0, 9000);
    return sizes[draw(d, 0, (int64_t)(sizeof sizes / sizeof *sizes) - 1)];
}

static int64_t draw_divisor(dice *d, int64_t n)
{
    static const int64_t runs[] = {1, 3, 8, 16, 64, 512, 1024, 2048, 3072, 8192, 16384};
    for (int tries = 0; tries < 8; ++tries) {
        const int64_t run = runs[draw(d, 0, (int64_t)(sizeof runs / sizeof *runs) - 1)];
        if (n % run == 0 && n / run <= 4096)
            return run;
    }
    return n;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

typedef struct block {
    tempi_op op;
    unsigned char *memory, *expected;
    int64_t bytes; /* of the memory */
} block;

static const tempi_layout *canonical(tempi_layout *raw)
{
    const tempi_layout *made;
    if (tempi_layout_canonical(raw, NULL, NULL, &made) != TEMPI_OK)
        fail("no layout");
    tempi_layout_free(raw);
    return made;
}

/* Frees `inner`. */
static tempi_layout *vector_of(int64_t count, int64_t stride, tempi_layout *inner)
{
    tempi_layout *made;
    if (tempi_layout_hvector(count, 1, stride, inner, &made) != TEMPI_OK)
        fail("no vector");
    tempi_layout_free(inner);
    return made;
}

static tempi_layout *bytes_of(int64_t n)
{
    tempi_layout *made;
    if (tempi_layout_bytes(n, &made) != TEMPI_OK)
        fail("no bytes");
    return made;
}

/* Runs of any length with gaps between them. */
static tempi_layout *irregular(dice *d, int64_t n)
{
    int64_t lengths[PARTS], places[PARTS], at = draw(d, 0, 9);
    int parts = 0;
    for (int64_t left = n; left > 0; ++parts) {
        const int64_t most = parts == PARTS - 1 ? left : draw(d, 1, left < 8 ? left : left / 2);
        lengths[parts] = most;
        places[parts] = at;
        at += most + draw(d, 1, 40);
        left -= most;
    }
    tempi_layout *byte = bytes_of(1), *made;
    if (tempi_layout_hindexed(parts, lengths, places, byte, &made) != TEMPI_OK)
        fail("no table");
    tempi_layout_free(byte);
    return made;
}

/* Runs in one dimension, or in two of which the outer one may be the denser. */
static tempi_layout *nest(dice *d, int64_t n)
{
    const int64_t run = draw_divisor(d, n), count = run > 0 ? n / run : 0;
    const int64_t stride = run + draw(d, 0, 1) * draw(d, 1, 100);
    for (int64_t inner = draw(d, 2, 5); inner > 1; --inner)
        if (count % inner == 0 && count > inner) {
            const bool swapped = draw(d, 0, 1);
            tempi_layout *row = vector_of(inner, swapped ? stride * (count / inner) : stride,
                                          bytes_of(run));
            return vector_of(count / inner, swapped ? stride : stride * inner + 7, row);
        }
    return vector_of(count, stride, bytes_of(run));
}

/* Sets the memory aside, some of it where others can map it, and fills it with poison. */
static void allocate(dice *d, block *b, int64_t count)
{
    const tempi_layout *layout = b->op.layout;
    const int64_t first = layout ? layout->true_lb : 0,
                  last = layout ? layout->true_ub + (count - 1) * layout->extent : b->op.n;
    b->bytes = (last > first ? last - first : 0) + 2 * GUARD;
    b->memory = draw(d, 0, 2) == 0 ? tempi_mapped_allocate(b->bytes) : malloc((size_t)b->bytes);
    b->expected = malloc((size_t)b->bytes);
    if (!b->memory || !b->expected)
        fail("no memory");
    memset(b->memory, POISON, (size_t)b->bytes);
    memset(b->expected, POISON, (size_t)b->bytes);
    b->op.mem = b->memory + GUARD - first;
    b->op.count = count;
}

static block block_make(dice *d, int64_t n)
{
    block b = {.op = {.n = n, .method = TEMPI_METHOD_HOST}};
    const int64_t kind = draw(d, 0, 4);
    int64_t count = 1;
    if (kind == 3) /* several elements */
        for (count = draw(d, 1, 4); n % count != 0; --count)
            ;
    if (kind > 0 && n > 0) /* else no layout */
        b.op.layout = canonical(kind == 1 ? irregular(d, n / count) : nest(d, n / count));
    allocate(d, &b, count);
    return b;
}

static void block_free(block *b)
{
    if (!tempi_mapped_free(b->memory))
        free(b->memory);
    free(b->expected);
    if (b->op.layout)
        tempi_layout_release(b->op.layout);
}

static void store(const block *b, unsigned char *memory, const char *packed, int64_t n)
{
    void *at = memory + ((unsigned char *)b->op.mem - b->memory);
    if (b->op.layout)
        tempi_unpack(b->op.layout, b->op.count, packed, 0, n, at);
    else
        memcpy(at, packed, (size_t)n);
}

/* The packed bytes of a block of that flow. */
static char *content(uint64_t key, int64_t n)
{
    dice d = {key * 0x9E3779B97F4A7C15u | 1};
    char *packed = malloc((size_t)n + 1);
    for (int64_t i = 0; i < n; ++i)
        packed[i] = (char)draw(&d, 0, 255);
    return packed;
}

#endif
