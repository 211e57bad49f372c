/* axis_order.h: in which order the axes of a copy are walked. */
#ifndef TEMPI_PACK_ORDER_H
#define TEMPI_PACK_ORDER_H
#include "pack/nest.h"

/* Reorders axes[0..n) (innermost first) for the caches; the copy is of runs of `run` bytes.
 * Returns 0, or the length of the blocks in which axes[0] is to be walked, with axes[1] inside the
 * loop over the blocks. */
int64_t tempi_order_axes(tempi_axis *axes, int n, int64_t run);

#endif
