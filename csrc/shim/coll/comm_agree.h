/* Agreements of all processes of a communicator, of both groups of an intercommunicator: by
 * collectives of the library on it, in a call in which all of them are. Each function returns the
 * same in all processes. */
#ifndef TEMPI_SHIM_COMM_AGREE_H
#define TEMPI_SHIM_COMM_AGREE_H

#include "shim/coll/node_comm.h"

/* Whether all processes say yes, or one of them. False if the library fails. */
bool tempi_comm_all(MPI_Comm comm, const tempi_node_comm *node, bool mine);
bool tempi_comm_any(MPI_Comm comm, const tempi_node_comm *node, bool mine);
/* Passes n characters of the first process to all. */
bool tempi_comm_broadcast(MPI_Comm comm, const tempi_node_comm *node, char *text, int n);

#endif
