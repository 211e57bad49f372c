/* A communicator all of whose processes are on this node and run tempi: the shared memory between
 * them, kept as its attribute. It is made in the first call that needs it. */
#ifndef TEMPI_SHIM_NODE_COMM_H
#define TEMPI_SHIM_NODE_COMM_H

#include "exchange/segment.h"
#include "shim/abi.h"
#include "shim/coll/edges.h"

typedef struct tempi_node_comm {
    bool carries; /* else the library does; the same in all its processes */
    int size, rank;
    uint64_t calls; /* exchanges so far */
    tempi_segment segment;
    tempi_ring_end *to, *from; /* for each process */
    tempi_edges all;           /* one block for each process */
    tempi_edges out, in;       /* of its neighbours; `first` is NULL until they are asked for */
    struct tempi_node_comm *next, *previous;
} tempi_node_comm;

/* NULL: the library does the call. All processes of the communicator must call it, in the same
 * blocking collective. */
tempi_node_comm *tempi_node_comm_of(MPI_Comm comm);
/* Before and after the library's finalize. */
void tempi_node_comm_stop(void);
void tempi_node_comm_clear(void);

#endif
