/* The blocks of a nonblocking or persistent collective that are in the memory of a device: as in a
 * blocking one (device_blocks.h), but what comes from other processes is read when all of it has
 * come, or is offered, in one launch together with the own blocks.
 *
 * Until then the senders may withdraw what they offer: nobody waits for a third process. */
#ifndef TEMPI_SHIM_DEVICE_POSTS_H
#define TEMPI_SHIM_DEVICE_POSTS_H

#include "shim/coll/device_moves.h"
#include "shim/coll/device_offer.h"
#include "shim/coll/node_comm.h"

/* Of one round. Prepares the described blocks of both sides, and describes those for other devices;
 * the moves of own blocks wait. Returns MPI_SUCCESS or an error that was raised. */
int tempi_device_posts_begin(tempi_device_moves *moves, tempi_node_comm *node, tempi_blocks *out,
                             tempi_blocks *in, tempi_device_offers *offers);

struct tempi_coll_request;
/* Does the moves, if it is time. What was claimed for them is read when this returns: its sender
 * may wait for that. Caller holds the lock under which messages are received. */
void tempi_device_posts_look(struct tempi_coll_request *r);

#endif
