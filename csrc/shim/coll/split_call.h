/* Calls on a communicator that is not on one node: what stays on this node goes through shared
 * memory (block_exchange.h), the rest is passed on by the library (remote_blocks.h). */
#ifndef TEMPI_SHIM_SPLIT_CALL_H
#define TEMPI_SHIM_SPLIT_CALL_H

#include "shim/coll/blocks.h"
#include "shim/coll/collective.h"
#include "shim/coll/node_part.h"
#include "shim/coll/remote_blocks.h"

/* As tempi_collective_carry, of the whole call's sides. */
bool tempi_split_carry(const tempi_collective *call, const tempi_blocks *out,
                       const tempi_blocks *in, int *result);

/* Whether the processes of the node carry it: the same in all of them, unless each packs for
 * itself. Makes the part of the communicator on this node. */
bool tempi_split_wanted(const tempi_collective *call, const tempi_blocks *out,
                        const tempi_blocks *in);
/* The part that such a call is divided by; NULL: no memory. */
tempi_node_part *tempi_split_part(const tempi_collective *call);
/* Once the part is made: opens what goes to other nodes, and restricts both sides to the part.
 * False: nothing is to be done here. *result: an error that was raised; tempi_remote_close is to be
 * called in any case. */
bool tempi_split_open(const tempi_collective *call, tempi_blocks *out, tempi_blocks *in,
                      tempi_remote *remote, int *result);
/* Restricts both sides to the part. False: no memory. */
bool tempi_split_restrict(const tempi_collective *call, tempi_blocks *out, tempi_blocks *in);
/* Counts one such call. */
void tempi_split_count(const tempi_collective *call, const tempi_remote *remote);

#endif
