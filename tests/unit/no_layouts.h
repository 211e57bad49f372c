/* no_layouts.h: for drivers that pack no derived datatypes, so that they do without the kernels. */
#ifndef TEMPI_TEST_NO_LAYOUTS_H
#define TEMPI_TEST_NO_LAYOUTS_H

#include "dice.h"
#include "pack/between.h"

#include <string.h>

#define NO_PACKING(name)                                                                 \
    void name(const tempi_layout *layout, int64_t count, const void *mem, int64_t first, \
              int64_t n, void *packed)                                                   \
    {                                                                                    \
        (void)layout, (void)count, (void)mem, (void)first, (void)n, (void)packed;        \
        fail("a layout");                                                                \
    }
NO_PACKING(tempi_pack)
NO_PACKING(tempi_pack_nontemporal)
NO_PACKING(tempi_unpack)
NO_PACKING(tempi_unpack_nontemporal)

bool tempi_copy_between(const tempi_op *from, const tempi_op *to, bool nontemporal)
{
    (void)from, (void)to, (void)nontemporal;
    return false;
}

bool tempi_between_begin(tempi_between *b, const tempi_op *from, const tempi_op *to,
                         bool nontemporal, int64_t bytes)
{
    (void)b, (void)bytes;
    return tempi_copy_between(from, to, nontemporal);
}

bool tempi_between_next(tempi_between *b)
{
    (void)b;
    fail("a layout");
    return false;
}

static int64_t level_2_cache = 512 << 10; /* bytes */

int64_t tempi_core_cache_bytes(void)
{
    return level_2_cache;
}

void tempi_copy_nontemporal(void *to, const void *from, int64_t n)
{
    memcpy(to, from, (size_t)n);
}

#endif
