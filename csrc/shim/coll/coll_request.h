/* Nonblocking and persistent collectives within a node; what goes to other nodes the library passes
 * on by a request of its own (split_call.h).
 *
 *   start     packs what goes to other processes into shared memory (exchange/post_box.h), of long
 *             messages the first parts, or offers long blocks, and moves the own blocks
 *   progress  in each later call: unpacks what has come, or reads what is offered
 *             (coll_progress.c); packs what was offered and nobody reads, and further parts, so no
 *             process depends on what this one does afterwards
 *   end       when all has come, and nothing is offered any more: a generalized request becomes
 *             complete
 *
 * A nonblocking call's request is that generalized one; an error is raised by its record, since the
 * library does not know the communicator. A persistent request is one of the library
 * that moves nothing; each start makes a generalized request, which its record puts in the place of
 * that one. Messages of persistent requests have a channel of their own: the processes may start
 * these in different orders. */
#ifndef TEMPI_SHIM_COLL_REQUEST_H
#define TEMPI_SHIM_COLL_REQUEST_H

#include "shim/coll/collective.h"

/* Starts it, or makes a persistent request. False: the library must do the call. True: *result is
 * the error code for the program, which was raised. */
bool tempi_coll_request_start(const tempi_collective *call, const tempi_bounce_argument *buffers,
                              MPI_Request *request, int *result);
bool tempi_coll_request_init(const tempi_collective *call, const tempi_bounce_argument *buffers,
                             MPI_Request *request, int *result);

/* Frees what the requests of a communicator have that is not the program's. */
void tempi_coll_request_forget(tempi_node_comm *node);

#endif
