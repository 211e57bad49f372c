/* The packed bytes of a block: of a whole operation of the host or, without a layout, contiguous
 * bytes at `mem`. */
#ifndef TEMPI_EXCHANGE_BLOCK_BYTES_H
#define TEMPI_EXCHANGE_BLOCK_BYTES_H

#include "base/copy_bytes.h"
#include "pack/pack.h"

static inline void tempi_block_pack(const tempi_op *block, int64_t first, int64_t n, char *packed)
{
    if (block->layout)
        tempi_pack(block->layout, block->count, block->mem, first, n, packed);
    else
        tempi_copy_bytes(packed, (const char *)block->mem + first, (size_t)n);
}

static inline void tempi_block_unpack(const tempi_op *block, int64_t first, int64_t n,
                                      const char *packed)
{
    if (block->layout)
        tempi_unpack(block->layout, block->count, packed, first, n, block->mem);
    else
        tempi_copy_bytes((char *)block->mem + first, packed, (size_t)n);
}

/* The same with non-temporal stores (pack/pack.h). */
static inline void tempi_block_pack_nontemporal(const tempi_op *block, int64_t first, int64_t n,
                                                char *packed)
{
    if (block->layout)
        tempi_pack_nontemporal(block->layout, block->count, block->mem, first, n, packed);
    else
        tempi_copy_nontemporal(packed, (const char *)block->mem + first, n);
}

static inline void tempi_block_unpack_nontemporal(const tempi_op *block, int64_t first, int64_t n,
                                                  const char *packed)
{
    if (block->layout)
        tempi_unpack_nontemporal(block->layout, block->count, packed, first, n, block->mem);
    else /* the C library does so by itself */
        tempi_copy_bytes((char *)block->mem + first, packed, (size_t)n);
}

#endif
