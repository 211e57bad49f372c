#include "base/budget.h"
#include "base/config.h"
#include "base/lock.h"
#include "base/stats.h"

static struct {
    tempi_lock lock;
    int64_t used;
} budget;

bool tempi_budget_take(int64_t bytes, int64_t capacity)
{
    tempi_lock_acquire(&budget.lock);
    const bool fits = bytes <= tempi_config.stage_max - budget.used;
    if (fits) {
        budget.used += capacity;
        if ((uint64_t)budget.used > tempi_stats[TEMPI_STAT_stage_peak])
            tempi_stats[TEMPI_STAT_stage_peak] = (uint64_t)budget.used;
    }
    tempi_lock_release(&budget.lock);
    return fits;
}

void tempi_budget_give(int64_t capacity)
{
    tempi_lock_acquire(&budget.lock);
    budget.used -= capacity;
    tempi_lock_release(&budget.lock);
}
