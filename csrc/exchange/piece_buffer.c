#include "exchange/piece_buffer.h"

#include <stdlib.h>

static void *heap_get(int64_t bytes)
{
    return malloc((size_t)bytes);
}

static struct {
    void *(*get)(int64_t bytes);
    void (*put)(void *memory);
} memory = {heap_get, free};

void tempi_exchange_use(void *(*get)(int64_t bytes), void (*put)(void *buffer))
{
    memory.get = get;
    memory.put = put;
}

void *tempi_exchange_get(int64_t bytes)
{
    return memory.get(bytes);
}

void tempi_exchange_put(void *buffer)
{
    memory.put(buffer);
}

void tempi_piece_open(tempi_piece_buffer *piece, int64_t n)
{
    piece->size = n;
    piece->bytes = n > (int64_t)sizeof piece->small ? memory.get(n) : NULL;
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
