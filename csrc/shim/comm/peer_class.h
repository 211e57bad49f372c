/* The locality class of a message's peer, as the model's tables distinguish them.
 *
 * Ranks of this node share the LLC or not (topology/locality.h); this is probed now and then
 * while messages go there. Ranks of this process's world are on this node if the launcher's
 * variables say so of all ranks, or if they are in the node registry (topology/node_registry.h).
 * The ranks of a communicator are translated to world ranks by their groups, once for each
 * communicator, and cached as its attribute. All others (processes of another world, ranks
 * without tempi in a job of several nodes) count as on another node. */
#ifndef TEMPI_SHIM_PEER_CLASS_H
#define TEMPI_SHIM_PEER_CLASS_H

#include "impl_prototypes.h"
#include "shim/abi.h"

/* Before MPI_Init: registers this process by the launcher's variables, so that all ranks of the
 * node that run tempi know each other afterwards (tempi_peer_agree). */
void tempi_peer_register(void);
/* After the first of MPI_Init and MPI_Session_init. If both are used, the first one defines the
 * world that processes are identified by. `acting`: false if tempi is off in this process. */
void tempi_peer_world_began(bool acting);
void tempi_peer_world_ends(void);
#ifdef TEMPI_ACTS_IN_Session_init
void tempi_peer_session_began(MPI_Session session);
void tempi_peer_session_ends(MPI_Session session);
#endif
/* Before the last of them ends, and after it. */
void tempi_peer_stop(void);
void tempi_peer_clear(void);

/* TEMPI_PEER_* for a message of so many bytes. MPI_ANY_SOURCE counts as the most distant class
 * in the communicator; an unknown communicator (MPI_COMM_NULL) as the most distant in the job. */
int tempi_peer_class(MPI_Comm comm, int peer, int64_t bytes);

/* Warnings that one process of a node writes for all of them, where they know each other. */
typedef enum tempi_line { TEMPI_LINE_NEIGHBOR_ORDER } tempi_line;
/* Whether this one writes it: true once. */
bool tempi_peer_says(tempi_line line);

/* Whether this node has fewer cores for this process than ranks. */
bool tempi_peer_crowded(void);
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

/* Implements tempi_comm_peer of tempi.h. */
int tempi_peer_report(uintptr_t comm, int rank, int *out);
/* Implements tempi_comm_probe_locality of tempi.h. */
int tempi_peer_probe(uintptr_t comm, int rank);

#endif
