#include "shim/request/quiet.h"
#include "base/lock.h"
#include "base/thread.h"

int64_t tempi_unquiet;
tempi_completing_state tempi_entries_completing;

/* A call may write where it has found what it looked for, which it does not here. */
_Alignas(64) char tempi_nothing[TEMPI_NOTHING_BYTES];

static void *const nothing[TEMPI_QUIET_TABLE] = TEMPI_NOTHINGS;

void *const *tempi_quiet_table = nothing;

static struct {
    tempi_lock lock; /* held while it is chosen, by threads that may come together */
    void *const *table;
} quiet = {.table = nothing};

void tempi_quiet_start(void)
{
    tempi_completing = &tempi_entries_completing;
}

static void choose_table(void *const *table, int64_t unquiet)
{
    const bool shared = tempi_threads_are_shared();
    if (shared)
        tempi_lock_acquire(&quiet.lock);
    if (table)
        quiet.table = table;
    __atomic_store_n(&tempi_unquiet, tempi_unquiet + unquiet, __ATOMIC_RELAXED);
    __atomic_store_n(&tempi_quiet_table, tempi_unquiet == 0 ? quiet.table : nothing,
                     __ATOMIC_RELEASE);
    if (shared)
        tempi_lock_release(&quiet.lock);
}

void tempi_unquiet_add(int64_t amount)
{
    choose_table(NULL, amount);
}

void tempi_quiet_use(void *const *table)
{
    choose_table(table ? table : nothing, 0);
}
