/* The shared memory of a communicator's processes: rings, and messages that wait. That of a
 * communicator that was freed is kept for the next one of the same processes in the same order, as
 * libraries make and free communicators all the time, and to make and map some MiB for each process
 * takes far longer than a short exchange. */
#ifndef TEMPI_SHIM_NODE_MEMORY_H
#define TEMPI_SHIM_NODE_MEMORY_H

#include "shim/coll/node_comm.h"

/* In a call in which all processes of the communicator are; the same in all of them. */
bool tempi_node_memory_connect(MPI_Comm comm, tempi_node_comm *node, tempi_connection what);
/* `keeps`: all that was sent was received, and it may be used again. */
void tempi_node_memory_close(tempi_node_comm *node, bool keeps);
/* Frees what was kept. */
void tempi_node_memory_clear(void);

#endif
