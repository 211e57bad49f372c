#include "exchange/ring.h"

#include <string.h>

/* Bytes at position `from` up to the end of the memory, at most `n`. */
static int64_t contiguous(const tempi_ring_bytes *end, uint64_t from, uint64_t n)
{
    const uint64_t left = end->capacity - (from & (end->capacity - 1));
    return (int64_t)(n < left ? n : left);
}

/* The other end is asked only when what was seen of it is used up: its line is then in its cache.
 */
int64_t tempi_ring_room(tempi_ring_bytes *end)
{
    if (end->capacity - (end->own - end->seen) < end->capacity / 2)
        end->seen = __atomic_load_n(end->tail, __ATOMIC_ACQUIRE);
    return (int64_t)(end->capacity - (end->own - end->seen));
}

int64_t tempi_ring_waiting(tempi_ring_bytes *end)
{
    if (end->seen == end->own)
        end->seen = __atomic_load_n(end->head, __ATOMIC_ACQUIRE);
    return (int64_t)(end->seen - end->own);
}

static char *position(const tempi_ring_bytes *end)
{
    return end->data + (end->own & (end->capacity - 1));
}

char *tempi_ring_free(tempi_ring_bytes *end, int64_t *n)
{
    *n = contiguous(end, end->own, (uint64_t)tempi_ring_room(end));
    return position(end);
}

const char *tempi_ring_unread(tempi_ring_bytes *end, int64_t *n)
{
    *n = contiguous(end, end->own, (uint64_t)tempi_ring_waiting(end));
    return position(end);
}

void tempi_ring_put(tempi_ring_bytes *end, const void *bytes, int64_t n)
{
    const int64_t first = contiguous(end, end->own, (uint64_t)n);
    memcpy(position(end), bytes, (size_t)first);
    memcpy(end->data, (const char *)bytes + first, (size_t)(n - first));
    end->own += (uint64_t)n;
}

void tempi_ring_take(tempi_ring_bytes *end, void *bytes, int64_t n)
{
    const int64_t first = contiguous(end, end->own, (uint64_t)n);
    memcpy(bytes, position(end), (size_t)first);
    memcpy((char *)bytes + first, end->data, (size_t)(n - first));
    end->own += (uint64_t)n;
}
