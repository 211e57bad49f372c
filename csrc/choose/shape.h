/* The shape of a layout, as the choice sees it: one number for each property that timings depend
 * on. */
#ifndef TEMPI_CHOOSE_SHAPE_H
#define TEMPI_CHOOSE_SHAPE_H

#include "choose/table_file.h"
#include "tempi.h"

#include <stdbool.h>

typedef struct tempi_shape {
    int64_t run;     /* bytes of the typical run */
    int64_t stride;  /* bytes between neighbouring runs; 0: irregular */
    int64_t row;     /* packed bytes of the runs of one innermost dimension; 0: irregular */
    int64_t step;    /* bytes from the last run of a row to the first of the next; 0: no rows */
    bool offset;     /* the first run does not begin at the element's start */
    bool variable;   /* runs of different lengths */
    bool single_run; /* one run an element: only the message's count multiplies it */
    bool transposed; /* the fastest dimension of the packed stream is not the memory's */
} tempi_shape;

tempi_shape tempi_shape_of(const tempi_layout *layout);
tempi_family tempi_shape_family(tempi_shape shape);
/* Bytes of the largest word that divides all of the layout's runs, given an aligned buffer. */
int tempi_shape_word(const tempi_layout *layout);

#endif
