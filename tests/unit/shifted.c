/* shifted.c: received bytes are shifted as on a processor whose copies collide. */
#include "base/copy_bytes.h"

int64_t tempi_copy_shift(int64_t bytes)
{
    return bytes > TEMPI_COPY_BY_WORDS ? 32 : 0;
}
