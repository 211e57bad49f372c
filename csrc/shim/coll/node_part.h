/* The part of a communicator that is on this node, where its other processes are elsewhere: a
 * communicator of these processes, made in the first call that needs it. */
#ifndef TEMPI_SHIM_NODE_PART_H
#define TEMPI_SHIM_NODE_PART_H

#include "shim/coll/node_comm.h"

/* The blocks that stay on the node, by ranks of the part, and the others. */
typedef struct tempi_divided_edges {
    bool known;
    tempi_edges here, there;
    int *process; /* of each block of `there` */
} tempi_divided_edges;

typedef struct tempi_node_part {
    tempi_node_comm *node; /* this process alone, unless the whole node runs tempi */
    MPI_Comm comm;         /* MPI_COMM_SELF, or owned */
    int *rank;             /* in it, of each process of the whole; -1: elsewhere, or the library
                              passes its blocks on as if it were */
    tempi_divided_edges all, out, in, one, none;
} tempi_node_part;

/* All processes of this node in the communicator must call it, in the same call that may wait for
 * all of them. NULL: no memory. */
tempi_node_part *tempi_node_part_of(MPI_Comm comm, tempi_node_comm *whole);
/* That in which the library passes on all blocks, also the own ones; any process may call it. */
tempi_node_part *tempi_node_part_alone(tempi_node_comm *whole);
/* Edges of `whole`, divided. NULL: no memory. */
const tempi_divided_edges *tempi_node_part_edges(tempi_node_part *part,
                                                 const tempi_node_comm *whole,
                                                 const tempi_edges *edges);
/* `frees`: its communicator too, as all processes of the whole do. */
void tempi_node_part_close(tempi_node_part *part, bool frees);

#endif
