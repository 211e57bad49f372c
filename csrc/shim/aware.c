#include "shim/aware.h"
#include "base/config.h"
#include "base/log.h"
#include "tempi.h"

bool tempi_aware;

/* Open MPI and MPICH both have it (mpi-ext.h, mpi.h). */
static bool ask(void)
{
    union {
        void *address;
        int (*call)(void);
    } query = {.address = tempi_engine_symbol("MPIX_Query_cuda_support")};
    return query.address && query.call() == 1;
}

void tempi_aware_learn(void)
{
    tempi_aware = tempi_config.cuda_aware >= 0 ? tempi_config.cuda_aware != 0 : ask();
    TEMPI_LOG(TEMPI_LOG_INFO, "the MPI library %s device addresses", tempi_aware ? "takes" : "does not take");
}
