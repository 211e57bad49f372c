/* The locality class of a message's peer, as the model's tables distinguish them.
 *
 * Ranks of this node share the LLC or not (topology/locality.h); this is probed now and then
 * while messages go there. The ranks of a communicator are translated to ranks of the world
 * (peer_world.h) by their groups, once for each communicator, and cached as its attribute. All
 * others (processes of another world, ranks without tempi in a job of several nodes) count as on
 * another node. */
#ifndef TEMPI_SHIM_PEER_CLASS_H
#define TEMPI_SHIM_PEER_CLASS_H

#include "shim/abi.h"

/* After an epoch of MPI has begun; before the last one ends, and after it. */
void tempi_peer_class_start(void);
void tempi_peer_class_stop(void);
void tempi_peer_class_clear(void);

/* TEMPI_PEER_* for a message of so many bytes. MPI_ANY_SOURCE counts as the most distant class
 * in the communicator; an unknown communicator (MPI_COMM_NULL) as the most distant in the job. */
int tempi_peer_class(MPI_Comm comm, int peer, int64_t bytes);

/* Implements tempi_comm_peer of tempi.h. */
int tempi_peer_report(uintptr_t comm, int rank, int *out);
/* Implements tempi_comm_probe_locality of tempi.h. */
int tempi_peer_probe(uintptr_t comm, int rank);

#endif
