/* The lower quartile of some times. The least one depends on how many there are, and a median on
 * whatever else the machine does. */
#ifndef TEMPI_BASE_QUARTILE_H
#define TEMPI_BASE_QUARTILE_H

#include "base/sorted.h"

enum { TEMPI_QUARTILE_KEPT = 8 };

/* Zero at first. Of more than four times as many as are kept, the greatest kept one stands. */
typedef struct tempi_quartile {
    double least[TEMPI_QUARTILE_KEPT]; /* in ascending order */
    int n;                             /* of all */
} tempi_quartile;

static inline void tempi_quartile_add(tempi_quartile *q, double value)
{
    int i = q->n < TEMPI_QUARTILE_KEPT ? q->n : TEMPI_QUARTILE_KEPT;
    ++q->n;
    if (i == TEMPI_QUARTILE_KEPT && value >= q->least[--i])
        return;
    tempi_sorted_add(q->least, i, value);
}

/* Of at least one. */
static inline double tempi_quartile_of(const tempi_quartile *q)
{
    const int i = q->n / 4;
    return q->least[i < TEMPI_QUARTILE_KEPT ? i : TEMPI_QUARTILE_KEPT - 1];
}

#endif
