#include "exchange/piece_buffer.h"

#include "pack/pack.h"

#include <stdlib.h>

enum { LEAST = 128 << 10, MOST = 1 << 20 };

static void *heap_get(int64_t bytes)
{
    return malloc((size_t)bytes);
}

static struct {
    void *(*get)(int64_t bytes);
    void *(*get_read)(int64_t bytes);
    void (*put)(void *memory);
} memory = {heap_get, heap_get, free};

void tempi_exchange_use(void *(*get)(int64_t bytes), void *(*get_read)(int64_t bytes),
                        void (*put)(void *buffer))
{
    memory.get = get;
    memory.get_read = get_read;
    memory.put = put;
}

void *tempi_exchange_get(int64_t bytes)
{
    return memory.get(bytes);
}

void *tempi_exchange_get_read(int64_t bytes)
{
    return memory.get_read(bytes);
}

void tempi_exchange_put(void *buffer)
{
    memory.put(buffer);
}

int64_t tempi_piece_bytes(void)
{
    const int64_t cache = tempi_core_cache_bytes();
    return cache < LEAST ? LEAST : cache < MOST ? cache : MOST;
}

void tempi_piece_open(tempi_piece_buffer *piece, int64_t n)
{
    piece->size = n;
    piece->bytes = NULL;
    while (piece->size > (int64_t)sizeof piece->small && !(piece->bytes = memory.get(piece->size)))
        piece->size /= 2;
    if (!piece->bytes) {
        piece->bytes = piece->small;
        piece->size = sizeof piece->small;
    }
}

void tempi_piece_close(tempi_piece_buffer *piece)
{
    if (piece->bytes != piece->small)
        memory.put(piece->bytes);
}
