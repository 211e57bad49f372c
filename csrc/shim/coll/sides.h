/* What a collective call passes: the blocks of both its sides. */
#ifndef TEMPI_SHIM_SIDES_H
#define TEMPI_SHIM_SIDES_H

#include "shim/coll/blocks.h"
#include "shim/coll/collective.h"

/* Without memory for the operations. False: the library must do the call. */
bool tempi_sides_of(const tempi_collective *call, const tempi_bounce_argument *buffers,
                    tempi_blocks *out, tempi_blocks *in);

/* Whether these blocks are a reason to carry a call. */
bool tempi_collective_needs(const tempi_blocks *out, const tempi_blocks *in);
/* Whether the processes carry the call: the same in all of them, which may ask each other. */
bool tempi_collective_wanted(const tempi_collective *call, const tempi_blocks *out,
                             const tempi_blocks *in);

#endif
