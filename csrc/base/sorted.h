/* Few numbers in ascending order. */
#ifndef TEMPI_BASE_SORTED_H
#define TEMPI_BASE_SORTED_H

/* Puts one more among n. */
static inline void tempi_sorted_add(double sorted[], int n, double value)
{
    for (; n > 0 && sorted[n - 1] > value; --n)
        sorted[n] = sorted[n - 1];
    sorted[n] = value;
}

#endif
