#include "base/thread.h"
#include "base/lock.h"
#include "tempi.h"

_Thread_local tempi_thread tempi_this_thread __attribute__((tls_model("initial-exec")));

bool tempi_threads_multiple;

void tempi_disable(void)
{
    ++tempi_this_thread.disabled;
}

void tempi_enable(void)
{
    if (tempi_this_thread.disabled > 0)
        --tempi_this_thread.disabled;
}
