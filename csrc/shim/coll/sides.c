#include "shim/coll/sides.h"

#include <string.h>

/* ---- entry ----------------------------------------------------------------------------------- */

static bool is_root(const tempi_collective *call, const tempi_node_comm *node)
{
    return tempi_node_comm_is_inter(node) ? call->root == MPI_ROOT : call->root == node->rank;
}

/* In the root's group of an intercommunicator. */
static bool takes_no_part(const tempi_collective *call, const tempi_node_comm *node)
{
    return tempi_node_comm_is_inter(node) && call->root == MPI_PROC_NULL;
}

/* The edges of both sides; false: the library must do the call. */
static bool find_edges(const tempi_collective *call, tempi_node_comm *node, const tempi_edges **out,
                       const tempi_edges **in)
{
    *out = *in = &node->all;
    if (call->pattern == TEMPI_PATTERN_ALL)
        return true;
    if (call->pattern == TEMPI_PATTERN_NEIGHBORS) {
        *out = &node->out;
        *in = &node->in;
        return node->out.first ||
               tempi_edges_of_neighbors(call->comm, node->size, &node->out, &node->in);
    }
    const bool at_root = is_root(call, node);
    const tempi_edges *others = at_root ? &node->all : &node->none, *one = &node->none;
    if (call->root >= 0 && call->root < node->peers) {
        tempi_edges_one(&node->one, node->size, node->peers_begin + call->root);
        one = &node->one;
    } else if (!at_root && !takes_no_part(call, node)) {
        return false;
    }
    *out = call->pattern == TEMPI_PATTERN_TO_ROOT ? one : others;
    *in = call->pattern == TEMPI_PATTERN_TO_ROOT ? others : one;
    return true;
}

/* The root of a broadcast is, too: it does not write its buffer. */
static bool is_in_place(const tempi_collective *call, const tempi_node_comm *node,
                        const tempi_bounce_argument *buffers)
{
    const bool rooted = call->pattern == TEMPI_PATTERN_TO_ROOT ||
                        call->pattern == TEMPI_PATTERN_FROM_ROOT;
    if (tempi_node_comm_is_inter(node) || (rooted && !is_root(call, node)))
        return false;
    return call->pattern == TEMPI_PATTERN_FROM_ROOT ? !(buffers[1].does & TEMPI_WRITES)
                                                    : !buffers[0].does;
}

/* In place, the blocks of this process stay where they are; what it sends to others is in the other
 * buffer. Written in place: as a result it was copied twice, in words that were just written in
 * other pieces, which took a fifth of a short call. */
static void side_make(tempi_blocks *side, const tempi_collective *call, const tempi_node_comm *node,
                      const tempi_bounce_argument *buffer, const tempi_edges *edges, bool in_place,
                      tempi_operation operation)
{
    memset(side, 0, sizeof *side);
    side->comm = call->comm;
    side->call = call->name;
    side->buffer = buffer;
    side->entry = buffer->times == TEMPI_ONCE ? 0 : -1;
    side->edges = edges;
    side->operation = operation;
    side->gathers = call->pattern == TEMPI_PATTERN_TO_ROOT;
    side->in_place = in_place ? node->rank : -1;
}

bool tempi_sides_of(const tempi_collective *call, const tempi_bounce_argument *buffers,
                    tempi_blocks *out, tempi_blocks *in)
{
    tempi_node_comm *node = call->node;
    const tempi_edges *to, *from;
    if (!find_edges(call, node, &to, &from))
        return false;
    const bool in_place = is_in_place(call, node, buffers);
    if (in_place && call->pattern == TEMPI_PATTERN_FROM_ROOT && node->size == 1)
        return false; /* nothing to do, but to look at the arguments */
    const bool receives_own = in_place && call->pattern == TEMPI_PATTERN_ALL;
    side_make(out, call, node, &buffers[receives_own], to, in_place, TEMPI_OP_SEND);
    side_make(in, call, node, &buffers[1], from, in_place, TEMPI_OP_RECV);
    if (receives_own && buffers[0].times == TEMPI_ONCE) /* MPI_Allgather: the own block for all */
        out->entry = node->rank;
    return !tempi_blocks_refusable(out, receives_own) && !tempi_blocks_refusable(in, receives_own);
}
