/* A communicator all of whose processes are on this node and run tempi: the shared memory between
 * them, kept as its attribute. It is made in the first call that needs it. */
#ifndef TEMPI_SHIM_NODE_COMM_H
#define TEMPI_SHIM_NODE_COMM_H

#include "base/fallback.h"
#include "exchange/segment.h"
#include "shim/abi.h"
#include "shim/coll/edges.h"

typedef struct tempi_node_comm {
    bool together; /* all are on this node and run tempi; the same in all its processes */
    bool ready;    /* this process has the memory that it needs by itself */
    int size, rank;
    uint64_t calls;                      /* exchanges so far */
    uint32_t seen[TEMPI_FUNCTION_COUNT]; /* calls of each function until it was carried */
    bool carried[TEMPI_FUNCTION_COUNT];
    tempi_segment segment;
    tempi_ring_end *to, *from; /* for each process; NULL until the first exchange */
    tempi_edges all;           /* one block for each process */
    tempi_edges none;          /* none */
    tempi_edges one;           /* one block, for the root of the call */
    tempi_edges out, in;       /* of its neighbours; `first` is NULL until they are asked for */
    struct tempi_node_comm *next, *previous;
} tempi_node_comm;

/* NULL: the library does all calls. */
tempi_node_comm *tempi_node_comm_of(MPI_Comm comm);
/* Before the first exchange: makes the shared memory. All processes of the communicator must call
 * it, in the same blocking collective, and get the same answer; false: the library does all calls.
 */
bool tempi_node_comm_connect(MPI_Comm comm, tempi_node_comm *node);
/* Before and after the library's finalize. */
void tempi_node_comm_stop(void);
void tempi_node_comm_clear(void);

#endif
