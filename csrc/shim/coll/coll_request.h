/* Nonblocking and persistent collectives within a node; what goes to other nodes the library passes
 * on by a request of its own (split_call.h).
 *
 *   start     packs what goes to other processes into shared memory (exchange/post_box.h), of long
 *             messages the first parts, or offers long blocks, and moves the own blocks
 *             (coll_start.c)
 *   progress  in each later call: unpacks what has come, or reads what is offered
 *             (coll_progress.c); packs what was offered and nobody reads, and further parts, so no
 *             process depends on what this one does afterwards
 *   end       when all has come, and nothing is offered any more
 *
 * A nonblocking call's request is a generalized one; an error is raised by its record, since the
 * library does not know the communicator. A persistent request is one of the library that moves
 * nothing and is never started; its record has a generalized one for it while it is active. The
 * library is asked about that one, and learns of its end, in calls for any or some of several
 * requests, in those that neither wait nor test, and before the end; else the call completes it
 * without the library, and the next request has the same handle (request_pool.h). A call with
 * blocks of this process alone needs none.
 *
 * Messages of persistent requests have a channel of their own: the processes may start
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
