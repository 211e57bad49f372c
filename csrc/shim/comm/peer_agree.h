/* Which processes of a communicator run tempi on this node and know this of each other: found
 * without a message, from the node registry (topology/node_registry.h), and alike in all of them.
 */
#ifndef TEMPI_SHIM_PEER_AGREE_H
#define TEMPI_SHIM_PEER_AGREE_H

#include "shim/abi.h"

/* Whether collectives with other ranks of this node may be carried at all. */
bool tempi_peer_may_agree(void);
/* Whether all `size` processes of an intracommunicator are ranks of this node that run tempi, and
 * know this of each other: then all of them get true, else all get false, without a message. */
bool tempi_peer_agree(MPI_Comm comm, int size);
/* The same for both groups of an intercommunicator. *first: whether the own group's first process
 * has a lower rank in this world than the other group's. */
bool tempi_peer_agree_inter(MPI_Comm comm, bool *first);

/* Numbers of all `size` processes of a communicator that has agreed, by their ranks; of an
 * intercommunicator first those of the own group, or of the other one. False: unknown. */
bool tempi_peer_members(MPI_Comm comm, int size, bool own_first, int *out);

/* The processes of an intracommunicator that are on this node, if all ranks of the world there run
 * tempi and know this of each other: the same group in all of them, without a message. False: not
 * so; nothing is to be freed. */
bool tempi_peer_node_group(MPI_Comm comm, MPI_Group *out);

#endif
