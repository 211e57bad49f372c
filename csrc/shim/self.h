/* Messages to oneself.
 *
 * A Sendrecv (or Sendrecv_replace) whose two peers are the process itself moves its bytes straight from
 * one strided memory to the other, when its send is sure to match its receive. That is so if on this
 * communicator nothing else of this process to itself can be in the way:
 *
 *   1. the tags match, the source is the own rank and not MPI_ANY_SOURCE, and the message fits;
 *   2. no send to the own rank was made other than by a Sendrecv that received it itself: an earlier one
 *      that is still on its way would have to be received first;
 *   3. no receive from the own rank or from MPI_ANY_SOURCE was posted that does not block: it would
 *      have to get the message.
 *
 * What other threads are doing at this moment is concurrent: a program cannot know that their calls have
 * begun, so it must be right with either order. What they have done is remembered as our own is.
 *
 * What the library still holds cannot be asked, so 2 and 3 are remembered for the communicator's life, by an
 * attribute, from the first such call on. In doubt the library carries the message. Host memory is
 * always the library's or goes packed: where there is no CUDA nothing is remembered at all.
 */
#ifndef TEMPI_SHIM_SELF_H
#define TEMPI_SHIM_SELF_H

#include "memory/kind.h"
#include "shim/abi.h"

/* A send to `peer`, or a receive from it that does not block, was made in comm, and is perhaps still
 * pending. */
void tempi_self_look(MPI_Comm comm, int peer);

static inline int tempi_self_saw(int rc, MPI_Comm comm, int peer)
{
    if (tempi_memory_mixed && rc == MPI_SUCCESS)
        tempi_self_look(comm, peer);
    return rc;
}

/* Whether a combined call's send matches its receive by the rule above, sizes apart. */
bool tempi_self_matches(MPI_Comm comm, int dest, int sendtag, int source, int recvtag);

/* Moves one message; false: it could not be done so, and nothing was. */
bool tempi_self_move(MPI_Comm comm, const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void *recvbuf,
                     MPI_Count recvcount, MPI_Datatype recvtype, int64_t *bytes, const char *call);
/* The same where both are one: nothing is left to move. */
bool tempi_self_stays(const void *buffer, MPI_Count count, MPI_Datatype datatype, int64_t *bytes);
/* The receive's status. */
void tempi_self_status(MPI_Status *status, int rank, int tag, int64_t bytes);

/* Between init and finalize. `seen`: all calls since MPI's init were seen. */
void tempi_self_start(bool seen);
void tempi_self_stop(void);

#endif
