/* The exchange of a call's blocks between the processes of one node:
 *
 *   1. Describe the blocks of both sides (blocks.h).
 *   2. Exchange those with other processes; meanwhile move the own ones from layout to layout.
 *   3. Unpack what came into staging buffers. */
#ifndef TEMPI_SHIM_BLOCK_EXCHANGE_H
#define TEMPI_SHIM_BLOCK_EXCHANGE_H

#include "shim/coll/blocks.h"
#include "shim/coll/node_comm.h"

/* What to do while the blocks that fit are on their way. Returns MPI_SUCCESS or an error that was
 * raised. */
typedef struct tempi_meanwhile {
    int (*act)(void *state);
    void *state;
} tempi_meanwhile;

/* Describes the blocks of both sides (`ops` is not set yet), exchanges and unpacks them. `node`:
 * its processes number the edges. `meanwhile`: may be NULL; is called in any case. Returns
 * MPI_SUCCESS or an error that was raised. */
int tempi_block_exchange(tempi_node_comm *node, tempi_blocks *out, tempi_blocks *in,
                         const tempi_meanwhile *meanwhile);

/* The same where neither side has blocks of other processes (tempi_blocks_are_own), nor is any in
 * device memory: the others need not call it. */
int tempi_block_exchange_own(tempi_node_comm *node, tempi_blocks *out, tempi_blocks *in);

/* Moves the described blocks of the process itself. False: one did not fit. */
bool tempi_block_move_own(tempi_node_comm *node, const tempi_blocks *out, const tempi_blocks *in);

#endif
