#include "exchange/rest.h"

#include "pack/pack.h"

enum { LEAST = 2 << 20 };

int64_t tempi_rest_bytes(void)
{
    const int64_t cache = tempi_core_cache_bytes();
    int64_t bytes = LEAST;
    while (bytes < TEMPI_REST_MOST && bytes < 2 * cache)
        bytes *= 2;
    return bytes;
}
