/* Start and end of tempi, together with MPI's. */
#ifndef TEMPI_SHIM_LIFECYCLE_H
#define TEMPI_SHIM_LIFECYCLE_H

#include "shim/abi.h"

/* Called when the shim is loaded: MPI may be initialized already. */
void tempi_lifecycle_loaded(void);

#endif
