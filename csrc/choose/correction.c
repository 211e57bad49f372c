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

double tempi_correction_at(const tempi_correction *bias, uint64_t now)
{
    const uint64_t fed = __atomic_load_n(&bias->fed, __ATOMIC_RELAXED);
    const double value = load(&bias->value), age = now > fed ? (double)(now - fed) : 0;
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

/* A complete group. */
static bool settle(tempi_correction *bias, uint64_t now)
{
    const double before = tempi_correction_at(bias, now),
                 value = before + (second_smallest(bias->group) - before) / 2;
    store(&bias->value, value);
    __atomic_store_n(&bias->fed, now, __ATOMIC_RELAXED);
    bias->n = 0;
    if (__builtin_fabs(value - bias->told) < TEMPI_CORRECTION_STEP)
        return false;
    bias->told = value;
    return true;
}

bool tempi_correction_feed(tempi_correction *bias, double sample, uint64_t now)
{
    bool moved = false;
    if (!__builtin_isfinite(sample) || !tempi_lock_try(&bias->lock))
        return false;
    bias->group[bias->n++] = bounded(sample);
    __atomic_store_n(&bias->samples, bias->samples + 1, __ATOMIC_RELAXED);
    if (bias->n == TEMPI_CORRECTION_GROUP)
        moved = settle(bias, now);
    tempi_lock_release(&bias->lock);
    return moved;
}
