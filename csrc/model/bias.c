#include "model/bias.h"
#include "model/number.h"

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
    return x > TEMPI_BIAS_MOST ? TEMPI_BIAS_MOST : x < -TEMPI_BIAS_MOST ? -TEMPI_BIAS_MOST : x;
}

double tempi_bias_at(const tempi_bias *bias, uint64_t now)
{
    const uint64_t fed = __atomic_load_n(&bias->fed, __ATOMIC_RELAXED);
    const double value = load(&bias->value), age = now > fed ? (double)(now - fed) : 0;
    return value == 0 || age == 0 ? value : value * tempi_number_exp(-0.6931471805599453 * age / TEMPI_BIAS_HALF);
}

static double second_smallest(const double *at)
{
    double least = at[0], second = at[1];
    if (second < least) {
        least = at[1];
        second = at[0];
    }
    for (int i = 2; i < TEMPI_BIAS_GROUP; ++i) {
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
static bool settle(tempi_bias *bias, uint64_t now)
{
    const double before = tempi_bias_at(bias, now), value = before + (second_smallest(bias->group) - before) / 2;
    store(&bias->value, value);
    __atomic_store_n(&bias->fed, now, __ATOMIC_RELAXED);
    bias->n = 0;
    if (__builtin_fabs(value - bias->told) < TEMPI_BIAS_STEP)
        return false;
    bias->told = value;
    return true;
}

bool tempi_bias_feed(tempi_bias *bias, double sample, uint64_t now)
{
    bool moved = false;
    if (!__builtin_isfinite(sample) || !tempi_lock_try(&bias->lock))
        return false;
    bias->group[bias->n++] = bounded(sample);
    __atomic_store_n(&bias->samples, bias->samples + 1, __ATOMIC_RELAXED);
    if (bias->n == TEMPI_BIAS_GROUP)
        moved = settle(bias, now);
    tempi_lock_release(&bias->lock);
    return moved;
}
