/* A process that waits for others in shared memory lets the library progress its other messages,
 * which the process that it waits for may need. */
#ifndef TEMPI_SHIM_WAITING_H
#define TEMPI_SHIM_WAITING_H

#include "shim/abi.h"

/* After MPI_Init. */
void tempi_waiting_start(void);
/* One turn; `waited` counts them from 1. `state`: an MPI_Request, MPI_REQUEST_NULL at first. */
void tempi_waiting_idle(void *state, int64_t waited);
void tempi_waiting_end(MPI_Request *request);

#endif
