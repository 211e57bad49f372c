/* axis_order.h: the order of the axes of a copy. */
#ifndef TEMPI_PACK_ORDER_H
#define TEMPI_PACK_ORDER_H
#include "pack/nest.h"

/* Reorders axes[0..n) (innermost first) for the caches; the copy is of runs of `run` bytes. Returns
 * 0, or the block length in which axes[0] is to be traversed, with axes[1] inside the loop over the
 * blocks. */
int64_t tempi_order_axes(tempi_axis *axes, int n, int64_t run);

#endif
