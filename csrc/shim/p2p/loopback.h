/* Messages to oneself, in device memory: from one strided memory straight to the other, with no
 * packed buffer between, where it is certain which receive has which message.
 *
 * In one call: a Sendrecv (or Sendrecv_replace) whose two peers are the process itself, whose tags
 * match and whose message fits. The library hears nothing of it, so nothing of this process to
 * itself may be pending on the communicator (posted_receives.h). What other threads are doing at
 * this moment is concurrent: a program cannot know that their calls have begun, so it must be right
 * with either order.
 *
 * In two: a send to the own rank, in any mode but the buffered one, that has its receive by the
 * ledger. The move takes the place of the pack: the send waits in the queue until it is done, and
 * then goes to the library as ever, with a staging buffer that holds nothing of interest; the
 * receive's staging buffer gets it and is not unpacked. So matching, statuses, completion,
 * cancelling and probing are the library's own, and a burst's moves are one launch with its packs.
 *
 * In doubt the library carries the message. Host memory is always the library's or goes packed:
 * where there is no CUDA nothing is remembered at all.
 */
#ifndef TEMPI_SHIM_SELF_H
#define TEMPI_SHIM_SELF_H

#include "memory/kind.h"
#include "shim/abi.h"
#include "shim/p2p/posted_receives.h"

/* A send to `peer`, or a receive from it that does not block, was made in comm, or will be, and is
 * perhaps pending then. */
void tempi_loopback_look(MPI_Comm comm, int peer);
/* A receive that blocks is being made. */
void tempi_loopback_block(MPI_Comm comm, int source);

/* With several threads, before the queue is posted and the call is made (posted_receives.h); then
 * with its result. */
static inline void tempi_loopback_before(MPI_Comm comm, int peer)
{
    if (tempi_memory_mixed && tempi_threads_multiple)
        tempi_loopback_look(comm, peer);
}

static inline void tempi_loopback_before_blocking(MPI_Comm comm, int source)
{
    if (tempi_memory_mixed && tempi_threads_multiple)
        tempi_loopback_block(comm, source);
}

static inline int tempi_loopback_saw(int rc, MPI_Comm comm, int peer)
{
    if (tempi_memory_mixed && rc == MPI_SUCCESS)
        tempi_loopback_look(comm, peer);
    return rc;
}

/* A receive of device memory, before it is posted: true, it is a certain one, and after it was
 * posted (and attached) `expected` is to be told. */
bool tempi_loopback_expects(MPI_Comm comm, int source);
void tempi_loopback_expected(MPI_Comm comm, int rc, int tag, MPI_Request request);

enum { TEMPI_LOOPBACK_NEVER = -1 }; /* a mode whose bytes the library takes at once */

/* A send in a tempi_send_mode, before anything else is done for it: true, it is being moved and
 * *request is its request. */
bool tempi_loopback_carry(const struct tempi_mpi *next, const void *buf, MPI_Count count,
                          MPI_Datatype datatype, int mode, int dest, int tag, MPI_Comm comm,
                          MPI_Request *request);

static inline bool tempi_loopback_carries(const struct tempi_mpi *next, const void *buf,
                                          MPI_Count count, MPI_Datatype datatype, int mode,
                                          int dest, int tag, MPI_Comm comm, MPI_Request *request)
{
    return tempi_memory_mixed &&
           (tempi_threads_multiple || (mode != TEMPI_LOOPBACK_NEVER && tempi_posted_waits())) &&
           tempi_loopback_carry(next, buf, count, datatype, mode, dest, tag, comm, request);
}

/* Whether a combined call's send matches its receive by the rule above, sizes apart. */
bool tempi_loopback_matches(MPI_Comm comm, int dest, int sendtag, int source, int recvtag);

/* Moves one message; false: it could not be done so, and nothing was. */
bool tempi_loopback_move(MPI_Comm comm, const void *sendbuf, MPI_Count sendcount,
                         MPI_Datatype sendtype, void *recvbuf, MPI_Count recvcount,
                         MPI_Datatype recvtype, int64_t *bytes, const char *call);
/* The same where both are one: nothing is left to move. */
bool tempi_loopback_stays(const void *buffer, MPI_Count count, MPI_Datatype datatype,
                          int64_t *bytes);
/* The receive's status. */
void tempi_loopback_status(MPI_Status *status, int rank, int tag, int64_t bytes);

/* Between init and finalize. `seen`: all calls since MPI's init were seen. */
void tempi_loopback_start(bool seen);
void tempi_loopback_stop(void);

#endif
