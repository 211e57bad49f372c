/* One start of a nonblocking or persistent collective (coll_request.h), up to where later calls
 * take it over (coll_progress.c). */
#ifndef TEMPI_SHIM_COLL_START_H
#define TEMPI_SHIM_COLL_START_H

#include "shim/coll/coll_round.h"

/* Starts the sides r->out and r->in, as tempi_sides_of made them; on failure nothing of it is left.
 * Caller holds the communicator's lock: several threads may start persistent requests of it.
 * Returns MPI_SUCCESS or an error that was raised. */
int tempi_coll_start(tempi_coll_request *r, const tempi_collective *call);
/* The same with the operations of the start before: r->kept. */
int tempi_coll_start_kept(tempi_coll_request *r, const tempi_collective *call);

#endif
