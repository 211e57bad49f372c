/* What a nonblocking or persistent collective sends within the node: all blocks for a process are
 * one message of the communicator's shared memory (exchange/post_box.h), packed, in parts if it is
 * long, or offered. */
#ifndef TEMPI_SHIM_COLL_POSTS_H
#define TEMPI_SHIM_COLL_POSTS_H

#include "shim/coll/device_offer.h"
#include "shim/coll/node_comm.h"
#include "shim/coll/post_tails.h"

/* A message whose blocks the receiver may read in the sender's memory. */
typedef struct tempi_coll_offer {
    tempi_post *post;
    int to, first, n; /* operations */
    bool streamed;    /* in parts, if it must be packed */
    bool described;   /* for the receiver's device */
    bool refusable;   /* the receiver may not be able to read it */
} tempi_coll_offer;

typedef struct tempi_coll_offers {
    tempi_coll_offer *open; /* owned; for as many processes as that, one each */
    int room, n;
    double storing; /* seconds, of all that this process has stored where receivers told it to */
    double since;   /* when they were all that was left to wait for; 0: not yet */
    tempi_post_tails tails;
} tempi_coll_offers;

/* Whether the operations that are sent must stay. */
static inline bool tempi_coll_offers_left(const tempi_coll_offers *offers)
{
    return offers->n > 0 || offers->tails.n > 0;
}

/* What is sent, and how. */
typedef struct tempi_coll_sending {
    const tempi_blocks *out, *in; /* the latter is described if a message may be divided */
    bool failed;               /* not all blocks are described: each process that may wait for one
                                  gets an error message instead */
    tempi_coll_offers *offers; /* NULL: no block may be offered or sent later; else the operations
                                  must stay while any are left */
    bool host;                 /* those of the host may be */
    const tempi_device_offers *described; /* for the receivers' devices */
} tempi_coll_sending;

/* Sends the blocks of all other processes. Returns MPI_SUCCESS or MPI_ERR_NO_MEM, which was raised,
 * and sent likewise. */
int tempi_coll_posts_send(tempi_node_comm *node, tempi_post_name name,
                          const tempi_coll_sending *sending);

/* Drops offers that were read, stores what receivers have told a place for, and packs what
 * receivers have refused. `idle`: nothing else is left to wait for; then one that its receiver does
 * not read for as long as packing takes is withdrawn and packed. `owner`: it holds the lock under
 * which messages are sent. Returns MPI_SUCCESS or an error; offers->n is 0 when all are settled. */
int tempi_coll_offers_look(tempi_node_comm *node, tempi_node_comm *owner, tempi_blocks *out,
                           tempi_coll_offers *offers, bool idle);
/* Stores likewise, and packs what receivers have refused, or may refuse yet, and all tails. False:
 * it is to be called again, as another thread holds that lock, or a device is reading. */
bool tempi_coll_offers_settle(tempi_node_comm *node, tempi_node_comm *owner, tempi_post_name name,
                              tempi_blocks *out, tempi_coll_offers *offers);
/* After an error: the receivers are told of it. */
void tempi_coll_offers_fail(tempi_coll_offers *offers, tempi_node_comm *node, tempi_post_name name);

#endif
