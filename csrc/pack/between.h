/* From one layout to another in steps, so that other blocks have their turns in between. */
#ifndef TEMPI_PACK_BETWEEN_H
#define TEMPI_PACK_BETWEEN_H

#include "pack/nest.h"

typedef struct tempi_between {
    tempi_nest left; /* what has not been copied */
    int64_t step;    /* indices of its outermost dim that are copied together */
} tempi_between;

/* Steps have about so many packed bytes. False: as of tempi_copy_between (pack.h), or there is one
 * run. */
bool tempi_between_begin(tempi_between *b, const tempi_op *from, const tempi_op *to,
                         bool nontemporal, int64_t bytes);
/* False: it was the last one. */
bool tempi_between_next(tempi_between *b);

#endif
