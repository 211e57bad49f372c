/* What a nonblocking or persistent collective sends within the node: all blocks for a process are
 * packed into one message of the communicator's shared memory (exchange/post_box.h). */
#ifndef TEMPI_SHIM_COLL_POSTS_H
#define TEMPI_SHIM_COLL_POSTS_H

#include "shim/coll/blocks.h"
#include "shim/coll/node_comm.h"

/* By what the receiver finds its request. */
typedef struct tempi_post_name {
    uint64_t channel, call;
} tempi_post_name;

/* Sends the blocks of all other processes. `failed`: not all blocks are described, so each process
 * that may wait for one gets an error message instead. Returns MPI_SUCCESS or MPI_ERR_NO_MEM, which
 * was raised, and sent likewise. */
int tempi_coll_posts_send(tempi_node_comm *node, tempi_post_name name, const tempi_blocks *out,
                          bool failed);

#endif
