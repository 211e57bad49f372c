#include "choose/correction.h"
#include "choose/fast_math.h"

static double load(const double *at)
{
    double value;
    __atomic_load(at, &value, __ATOMIC_RELAXED);
    return value;
}

static void store(double *at, double value)
{
    __atomic_store(at, &value, __ATOMIC_RELAXED);
}

static double bounded(double x)
{
    return x > TEMPI_CORRECTION_MOST    ? TEMPI_CORRECTION_MOST
           : x < -TEMPI_CORRECTION_MOST ? -TEMPI_CORRECTION_MOST
                                        : x;
}

double tempi_correction_at(const tempi_correction *correction, uint64_t now)
{
    const uint64_t fed = __atomic_load_n(&correction->fed, __ATOMIC_RELAXED);
    const double value = load(&correction->value), age = now > fed ? (double)(now - fed) : 0;
    return value == 0 || age == 0
               ? value
               : value * tempi_fast_exp(-0.6931471805599453 * age / TEMPI_CORRECTION_HALF);
}

static double second_smallest(const double *at)
{
    double least = at[0], second = at[1];
    if (second < least) {
        least = at[1];
        second = at[0];
    }
    for (int i = 2; i < TEMPI_CORRECTION_GROUP; ++i) {
        if (at[i] < least) {
            second = least;
            least = at[i];
        } else if (at[i] < second) {
            second = at[i];
        }
    }
    return second;
}

/* Applies a complete group. */
static bool settle(tempi_correction *correction, uint64_t now)
{
    const double before = tempi_correction_at(correction, now),
                 value = before + (second_smallest(correction->group) - before) / 2;
    store(&correction->value, value);
    __atomic_store_n(&correction->fed, now, __ATOMIC_RELAXED);
    correction->n = 0;
    if (__builtin_fabs(value - correction->reported) < TEMPI_CORRECTION_STEP)
        return false;
    correction->reported = value;
    return true;
}

bool tempi_correction_feed(tempi_correction *correction, double sample, uint64_t now)
{
    bool moved = false;
    if (!__builtin_isfinite(sample) || !tempi_lock_try(&correction->lock))
        return false;
    correction->group[correction->n++] = bounded(sample);
    __atomic_store_n(&correction->samples, correction->samples + 1, __ATOMIC_RELAXED);
    if (correction->n == TEMPI_CORRECTION_GROUP)
        moved = settle(correction, now);
    tempi_lock_release(&correction->lock);
    return moved;
}
