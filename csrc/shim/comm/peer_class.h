/* Where the other rank of a message is, as the model's tables tell them apart.
 *
 * Ranks of this node are near or far (topology/locality.h), which is looked at now and then while
 * messages go there. Ranks of this process's world are on this node where the launcher's variables
 * say so of all of them, or where they have entered themselves on the node's board
 * (topology/node_registry.h). A communicator's ranks are those of the world by their groups,
 * translated once for each communicator and kept with it. Everybody else (processes of another
 * world, ranks without tempi in a job of several nodes) counts as on another node. */
#ifndef TEMPI_SHIM_PEER_H
#define TEMPI_SHIM_PEER_H

#include "impl_prototypes.h"
#include "shim/abi.h"

/* When the first of MPI_Init and MPI_Session_init is done; where both are used, the processes are
 * known by the one that came first. */
void tempi_peer_world_began(void);
void tempi_peer_world_ends(void);
#ifdef TEMPI_ACTS_IN_Session_init
void tempi_peer_session_began(MPI_Session session);
void tempi_peer_session_ends(MPI_Session session);
#endif
/* Before the last of them ends, and when it has ended. */
void tempi_peer_stop(void);
void tempi_peer_clear(void);

/* TEMPI_PEER_*, for a message of so many bytes. A receive from any rank counts as from the farthest
 * that there is in the communicator, and one whose communicator is not known (MPI_COMM_NULL) as
 * from the farthest in the job. */
int tempi_peer_class(MPI_Comm comm, int peer, int64_t bytes);

/* tempi_comm_peer of tempi.h. */
int tempi_peer_tell(uintptr_t comm, int rank, int *out);
/* tempi_comm_look of tempi.h. */
int tempi_peer_probe(uintptr_t comm, int rank);

#endif
