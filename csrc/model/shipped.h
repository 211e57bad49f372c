/* Calibrations that come with tempi (shipped.c); the functions are in tempi.h. */
#ifndef TEMPI_MODEL_SHIPPED_H
#define TEMPI_MODEL_SHIPPED_H

/* By how much tempi's way must be predicted to be faster where the tables are those of another machine of this kind. */
#define TEMPI_SHIPPED_MARGIN 0.10

#endif
