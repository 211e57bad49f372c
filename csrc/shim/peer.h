/* Where the other rank of a message is, as the model's tables tell them apart. */
#ifndef TEMPI_SHIM_PEER_H
#define TEMPI_SHIM_PEER_H

#include "shim/abi.h"

/* At start: whether this job is one node, which is known without a message from the launcher's
 * variables. Where it is not, every rank but this one counts as one of another node. */
void tempi_peer_learn(void);

/* TEMPI_PEER_*. A receive from any rank, or one whose communicator is not known (MPI_COMM_NULL), counts
 * as from the farthest that there can be. */
int tempi_peer_of(MPI_Comm comm, int peer);

#endif
