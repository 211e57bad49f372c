#include "exchange/rest.h"

#include "pack/pack.h"

enum { LEAST = 1 << 20, MOST = 4 << 20 };

int64_t tempi_rest_bytes(void)
{
    const int64_t cache = tempi_core_cache_bytes();
    int64_t bytes = LEAST;
    while (bytes < MOST && bytes < 2 * cache)
        bytes *= 2;
    return bytes;
}
