/* Calibrations shipped with tempi (shipped.c); the functions are declared in tempi.h. */
#ifndef TEMPI_CHOOSE_SHIPPED_H
#define TEMPI_CHOOSE_SHIPPED_H

/* A shipped table comes from another machine of this kind: it overrides the built-in rule only if
 * it predicts the other way to be faster by this fraction. */
#define TEMPI_SHIPPED_MARGIN 0.33

#endif
