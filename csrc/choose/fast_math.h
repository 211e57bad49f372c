/* Logarithm and exponential, to within a few units of the last place. libm is not used: the engine
 * is loaded into every process that inherits LD_PRELOAD, and another library costs each of them
 * some 50 microseconds. */
#ifndef TEMPI_CHOOSE_FAST_MATH_H
#define TEMPI_CHOOSE_FAST_MATH_H

#include <stdint.h>
#include <string.h>

static inline double tempi_number_of_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* 2^k for a normal result. */
static inline double tempi_fast_power(int64_t k)
{
    return tempi_number_of_bits((uint64_t)(k + 1023) << 52);
}

/* The last 32 bits are 0, so that a product with k is exact. */
static const double TEMPI_LN2_HIGH = 6.93147180369123816490e-01;
static const double TEMPI_LN2_LOW = 1.90821492927058770002e-10;

/* Reciprocals: divisions would take most of the time of a prediction. */
static const double TEMPI_INVERSE[] = {0,        1.0,      1.0 / 2,  1.0 / 3,  1.0 / 4,  1.0 / 5,
                                       1.0 / 6,  1.0 / 7,  1.0 / 8,  1.0 / 9,  1.0 / 10, 1.0 / 11,
                                       1.0 / 12, 1.0 / 13, 1.0 / 14, 1.0 / 15, 1.0 / 16, 1.0 / 17,
                                       1.0 / 18, 1.0 / 19, 1.0 / 20, 1.0 / 21};

/* For finite normal x > 0: x = 2^k m with m around 1, and log m = 2 artanh((m - 1) / (m + 1)). */
static inline double tempi_fast_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int64_t k = (int64_t)(bits >> 52) - 1023;
    double m = tempi_number_of_bits((bits & 0xfffffffffffffULL) | 0x3ff0000000000000ULL);
    if (m > 1.4142135623730951) {
        m /= 2;
        k++;
    }
    const double s = (m - 1) / (m + 1), s2 = s * s;
    double sum = 0;
    for (int n = 21; n >= 1; n -= 2)
        sum = sum * s2 + TEMPI_INVERSE[n];
    return (double)k * TEMPI_LN2_HIGH + ((double)k * TEMPI_LN2_LOW + 2 * s * sum);
}

/* x = k ln 2 + r with |r| below 0.35, and the series of exp r. x is clamped to [-700, 700]. */
static inline double tempi_fast_exp(double x)
{
    x = x > 700 ? 700 : x < -700 ? -700 : x;
    const double scaled = x * 1.4426950408889634;
    const int64_t k = (int64_t)(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
    const double r = (x - (double)k * TEMPI_LN2_HIGH) - (double)k * TEMPI_LN2_LOW;
    double sum = 1;
    for (int n = 14; n >= 1; n--)
        sum = 1 + sum * (r * TEMPI_INVERSE[n]);
    return sum * tempi_fast_power(k);
}

#endif
