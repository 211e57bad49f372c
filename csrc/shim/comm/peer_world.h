/* The world that processes are identified by, and who of it is on this node.
 *
 * Ranks of this process's world are on this node if the launcher's variables say so of all ranks,
 * or if they are in the node registry (topology/node_registry.h). */
#ifndef TEMPI_SHIM_PEER_WORLD_H
#define TEMPI_SHIM_PEER_WORLD_H

#include "impl_prototypes.h"
#include "shim/abi.h"
#include "topology/launcher.h"
#include "topology/locality.h"
#include "topology/node_registry.h"

typedef struct tempi_peer_world {
    bool started;
    bool mixed; /* after a second epoch of MPI, whose groups must not be compared */
    bool has_world;
    bool one_node;
    bool by_session;
    bool acting;  /* tempi may carry collectives in this process */
    bool refused; /* the registry could not be joined */
    int size;
    MPI_Group world; /* processes of this world, in the order of the launcher's ranks */
    tempi_node_registry *registry;
    tempi_locality *locality; /* between the ranks on this node, in the order of their entries */
    int registered;           /* this process's rank in the registry, before MPI_Init */
    tempi_job job;            /* by which it registered then */
#ifdef TEMPI_ACTS_IN_Session_init
    MPI_Session session; /* source of `world`, if by_session */
#endif
} tempi_peer_world;

/* Changed by the functions here alone; read by those beside it. */
extern tempi_peer_world tempi_peers;

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
/* Before the last of them ends. */
void tempi_peer_stop(void);

/* Warnings that one process of a node writes for all of them, where they know each other. */
typedef enum tempi_line { TEMPI_LINE_NEIGHBOR_ORDER } tempi_line;
/* Whether this one writes it: true once. */
bool tempi_peer_says(tempi_line line);

/* Whether this node has fewer cores for this process than ranks. */
bool tempi_peer_crowded(void);
#endif
