/* Messages of a process to itself in device memory: copied from one strided memory straight to
 * the other, without a packed buffer, if the match of send and receive is certain.
 *
 * In one call: MPI_Sendrecv (or Sendrecv_replace) with the own rank as both peers, matching tags
 * and a message that fits. The library does not see it, so no message of this process to itself
 * may be pending on the communicator (posted_receives.h). Calls of other threads at this moment
 * are concurrent: the program cannot know that they have begun, so either order is correct.
 *
 * In two calls: a send to the own rank, in any mode but buffered, that matches a posted receive
 * in the list. The move replaces the pack: the send is deferred until the move is done and then
 * goes to the library as usual, with a staging buffer of undefined contents; the receive's
 * staging buffer gets them and is not unpacked. So matching, statuses, completion, cancelling
 * and probing remain the library's, and the moves of a burst share one launch with its packs.
 *
 * If in doubt the library carries the message. Messages in host memory always go to the library
 * or are packed: without CUDA nothing is recorded. */
#ifndef TEMPI_SHIM_LOOPBACK_H
#define TEMPI_SHIM_LOOPBACK_H

#include "memory/kind.h"
#include "shim/abi.h"
#include "shim/p2p/posted_receives.h"

/* Records that a send to `peer`, or a nonblocking receive from it, was or will be made in comm
 * and may be pending. */
void tempi_loopback_note(MPI_Comm comm, int peer);
/* Records that a blocking receive is being made. */
void tempi_loopback_block(MPI_Comm comm, int source);

/* With several threads: before deferred sends are posted and the call is made
 * (posted_receives.h). tempi_loopback_saw follows the call, with its result. */
static inline void tempi_loopback_before(MPI_Comm comm, int peer)
{
    if (tempi_memory_mixed && tempi_threads_are_shared())
        tempi_loopback_note(comm, peer);
}

static inline void tempi_loopback_before_blocking(MPI_Comm comm, int source)
{
    if (tempi_memory_mixed && tempi_threads_are_shared())
        tempi_loopback_block(comm, source);
}

static inline int tempi_loopback_saw(int rc, MPI_Comm comm, int peer)
{
    if (tempi_memory_mixed && rc == MPI_SUCCESS)
        tempi_loopback_note(comm, peer);
    return rc;
}

/* Before a receive into device memory is posted: true if its match is certain; then call
 * `expected` after the receive was posted (and attached). */
bool tempi_loopback_expects(MPI_Comm comm, int source);
void tempi_loopback_expected(MPI_Comm comm, int rc, int tag, MPI_Request request);

enum { TEMPI_LOOPBACK_NEVER = -1 }; /* buffered mode: the library takes the bytes at once */

/* Before anything else is done for a send in a tempi_send_mode: true if tempi moves the message;
 * then *request is its request. */
bool tempi_loopback_carry(const struct tempi_mpi *next, const void *buf, MPI_Count count,
                          MPI_Datatype datatype, int mode, int dest, int tag, MPI_Comm comm,
                          MPI_Request *request);

static inline bool tempi_loopback_carries(const struct tempi_mpi *next, const void *buf,
                                          MPI_Count count, MPI_Datatype datatype, int mode,
                                          int dest, int tag, MPI_Comm comm, MPI_Request *request)
{
    return tempi_memory_mixed &&
           (tempi_threads_are_shared() || (mode != TEMPI_LOOPBACK_NEVER && tempi_posted_waits())) &&
           tempi_loopback_carry(next, buf, count, datatype, mode, dest, tag, comm, request);
}

/* Whether a combined call's send matches its receive by the rule above; the sizes are not
 * compared. */
bool tempi_loopback_matches(MPI_Comm comm, int dest, int sendtag, int source, int recvtag);

/* Moves one message. False: it could not be moved, and nothing was done. */
bool tempi_loopback_move(MPI_Comm comm, const void *sendbuf, MPI_Count sendcount,
                         MPI_Datatype sendtype, void *recvbuf, MPI_Count recvcount,
                         MPI_Datatype recvtype, int64_t *bytes, const char *call);
/* The same if both are one buffer: nothing is moved. */
bool tempi_loopback_stays(const void *buffer, MPI_Count count, MPI_Datatype datatype,
                          int64_t *bytes);
/* Fills in the receive's status. */
void tempi_loopback_status(MPI_Status *status, int rank, int tag, int64_t bytes);

/* Between init and finalize. `seen`: tempi has seen all calls since MPI was initialized. */
void tempi_loopback_start(bool seen);
void tempi_loopback_stop(void);

#endif
