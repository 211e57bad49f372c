/* Layouts of nests that other processes describe (exchange/nest_walk.h). */
#ifndef TEMPI_SHIM_SHAPE_LAYOUT_H
#define TEMPI_SHIM_SHAPE_LAYOUT_H

#include "exchange/nest_walk.h"

/* The canonical layout of a nest with its first run at 0, to be released; NULL: out of memory.
 * Those used last are cached. */
const tempi_layout *tempi_shape_layout(const tempi_nest_shape *shape);
void tempi_shape_layout_clear(void);

#endif
