/* What a nonblocking or persistent collective sends within the node: all blocks for a process are
 * one message of the communicator's shared memory (exchange/post_box.h), packed or offered. */
#ifndef TEMPI_SHIM_COLL_POSTS_H
#define TEMPI_SHIM_COLL_POSTS_H

#include "shim/coll/blocks.h"
#include "shim/coll/node_comm.h"

/* By what the receiver finds its request. */
typedef struct tempi_post_name {
    uint64_t channel, call;
} tempi_post_name;

/* A message whose blocks the receiver may read in the sender's memory. */
typedef struct tempi_coll_offer {
    tempi_post *post;
    int first, n; /* operations */
} tempi_coll_offer;

typedef struct tempi_coll_offers {
    tempi_coll_offer *open; /* owned */
    int n;
    double since; /* when they were all that was left to wait for; 0: not yet */
} tempi_coll_offers;

/* Sends the blocks of all other processes. `failed`: not all blocks are described, so each process
 * that may wait for one gets an error message instead. Blocks may be offered if `offers` is not
 * NULL: the operations must then stay until these are settled. Returns MPI_SUCCESS or
 * MPI_ERR_NO_MEM, which was raised, and sent likewise. */
int tempi_coll_posts_send(tempi_node_comm *node, tempi_post_name name, const tempi_blocks *out,
                          bool failed, tempi_coll_offers *offers);

/* When nothing else is left to wait for: drops offers that were read. One that its receiver does
 * not read for as long as packing takes is withdrawn and packed. `owner`: it holds the lock under
 * which messages are sent. Returns MPI_SUCCESS or an error; offers->n is 0 when all are settled. */
int tempi_coll_offers_look(tempi_node_comm *node, tempi_node_comm *owner, const tempi_op *ops,
                           tempi_coll_offers *offers);
/* Settles all of them at once; the caller holds that lock. */
void tempi_coll_offers_end(tempi_node_comm *node, const tempi_op *ops, tempi_coll_offers *offers);

#endif
