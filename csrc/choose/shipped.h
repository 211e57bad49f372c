/* Calibrations that come with tempi (shipped.c); the functions are in tempi.h. */
#ifndef TEMPI_MODEL_SHIPPED_H
#define TEMPI_MODEL_SHIPPED_H

/* Where the tables are those of another machine of this kind, the built-in rule stands unless the
 * other way is predicted to be faster by this part. */
#define TEMPI_SHIPPED_MARGIN 0.33

#endif
