#include "shim/comm/cuda_aware.h"
#include "base/config.h"
#include "base/log.h"
#include "interposer/interposer.h"

bool tempi_cuda_aware;

static int (*query)(void);

/* Open MPI and MPICH both have it (mpi-ext.h, mpi.h). It is looked up at load because MPI may
 * already be initialised then, and must not be entered from within the interposer. */
void tempi_cuda_aware_find(const struct tempi_interposer *interposer)
{
    union {
        void *address;
        int (*call)(void);
    } found = {.address = interposer->lib("MPIX_Query_cuda_support")};
    query = found.call;
}

bool tempi_cuda_aware_says(void)
{
    return query && query() == 1;
}

void tempi_cuda_aware_determine(void)
{
    tempi_cuda_aware = tempi_config.cuda_aware >= 0 ? tempi_config.cuda_aware != 0
                                                    : tempi_cuda_aware_says();
    TEMPI_LOG(TEMPI_LOG_INFO, "the MPI library %s CUDA-aware", tempi_cuda_aware ? "is" : "is not");
}
