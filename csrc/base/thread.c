#include "base/thread.h"
#include "base/passing.h"
#include "tempi.h"

_Thread_local tempi_thread tempi_this_thread __attribute__((tls_model("initial-exec")));

_Alignas(64) tempi_passing_state tempi_passing;

static tempi_completing_state completing;
tempi_completing_state *tempi_completing = &completing;

void tempi_threads_share(void)
{
    if (tempi_passing.shared) /* a store would take the line from threads that read it */
        return;
    __atomic_store_n(&tempi_passing.shared, true, __ATOMIC_RELAXED);
}

void tempi_disable(void)
{
    if (tempi_this_thread.disabled++ == 0)
        __atomic_fetch_add(&tempi_passing.disabled, 1, __ATOMIC_RELAXED);
}

void tempi_enable(void)
{
    if (tempi_this_thread.disabled > 0 && --tempi_this_thread.disabled == 0)
        __atomic_fetch_sub(&tempi_passing.disabled, 1, __ATOMIC_RELAXED);
}
