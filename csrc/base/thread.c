#include "base/thread.h"
#include "base/lock.h"
#include "tempi.h"

_Thread_local tempi_thread tempi_this_thread __attribute__((tls_model("initial-exec")));

bool tempi_threads_multiple;
int tempi_threads_disabled;

void tempi_disable(void)
{
    if (tempi_this_thread.disabled++ == 0)
        __atomic_fetch_add(&tempi_threads_disabled, 1, __ATOMIC_RELAXED);
}

void tempi_enable(void)
{
    if (tempi_this_thread.disabled > 0 && --tempi_this_thread.disabled == 0)
        __atomic_fetch_sub(&tempi_threads_disabled, 1, __ATOMIC_RELAXED);
}
