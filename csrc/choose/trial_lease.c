#include "choose/trial_lease.h"

static uint64_t own_index, lease;

void tempi_trial_lease_start(int own)
{
    own_index = (uint64_t)own + 1;
    lease = 0;
}

static uint64_t held(void)
{
    return __atomic_load_n(&tempi_passing.trials->running, __ATOMIC_RELAXED);
}

/* Until when (in 2^20 ns), and whose. */
static uint64_t lease_until(int64_t time)
{
    return (uint64_t)time >> 20 << 16 | (own_index & 0xFFFF);
}

static bool is_over(uint64_t there, int64_t now)
{
    return there == 0 || there >> 16 <= (uint64_t)now >> 20;
}

bool tempi_trial_lease_take(int64_t now, int64_t patience)
{
    uint64_t there = held();
    if (!is_over(there, now))
        return false;
    lease = lease_until(now + patience);
    return __atomic_compare_exchange_n(&tempi_passing.trials->running, &there, lease, false,
                                       __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static bool replace(uint64_t with)
{
    uint64_t there = lease;
    if (there == 0)
        return false;
    if (with == there)
        return held() == there;
    lease = with;
    return __atomic_compare_exchange_n(&tempi_passing.trials->running, &there, with, false,
                                       __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

bool tempi_trial_lease_renew(int64_t now, int64_t patience)
{
    return replace(lease_until(now + patience));
}

void tempi_trial_lease_return(void)
{
    (void)replace(0);
}

void tempi_trial_rest_until(int64_t time)
{
    __atomic_store_n(&tempi_passing.trials->rest, time, __ATOMIC_RELAXED);
}

bool tempi_trial_rests(int64_t now)
{
    return now < __atomic_load_n(&tempi_passing.trials->rest, __ATOMIC_RELAXED);
}

bool tempi_trial_lease_is_held(void)
{
    return held() != 0;
}

bool tempi_trial_lease_is_over(int64_t now)
{
    return is_over(held(), now);
}

void tempi_trial_lease_look(int64_t now)
{
    uint64_t there = held();
    if (is_over(there, now))
        (void)__atomic_compare_exchange_n(&tempi_passing.trials->running, &there, 0, false,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
