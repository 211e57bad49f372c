/* The blocks of an exchange that are in the memory of a device: its kernels move them from layout
 * to layout, within the process and from memory of other processes (cuda/ipc.h), all of a call in
 * one launch.
 *
 *   1. Of the blocks that this process sends itself both must be in memory of one device.
 *   2. What goes to another process is offered to its device, if all of it is in device memory, the
 *      layouts are nests, and the allocations have handles.
 *   3. All others are staged (blocks.h): those that are sent at once, those that come when the
 *      header says that they are not offered. */
#ifndef TEMPI_SHIM_DEVICE_BLOCKS_H
#define TEMPI_SHIM_DEVICE_BLOCKS_H

#include "exchange/exchange.h"
#include "shim/coll/device_moves.h"
#include "shim/coll/device_offer.h"
#include "shim/coll/node_comm.h"

typedef struct tempi_device_blocks {
    tempi_flow_device hooks; /* for flows with such blocks */
    tempi_node_comm *node;
    tempi_blocks *out, *in;
    tempi_device_moves moves;
    tempi_device_offers offers;
    int result; /* MPI_SUCCESS or an error that was raised */
} tempi_device_blocks;

/* Prepares the described blocks. After an error, which was raised, the flows that join bring zeros
 * to others, and drop what comes. */
void tempi_device_blocks_begin(tempi_device_blocks *device, tempi_node_comm *node,
                               tempi_blocks *out, tempi_blocks *in);
/* Lets a flow to (or from) that process take part. */
void tempi_device_blocks_join(const tempi_device_blocks *device, int process, tempi_flow *flow);
/* Moves what is left. Returns the result of all. */
int tempi_device_blocks_end(tempi_device_blocks *device);

#endif
