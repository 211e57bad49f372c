#include "shim/coll/split_call.h"
#include "base/stats.h"
#include "base/trace.h"
#include "shim/coll/block_exchange.h"
#include "shim/coll/node_part.h"
#include "shim/coll/remote_blocks.h"
#include "shim/coll/sides.h"

tempi_node_part *tempi_split_part(const tempi_collective *call)
{
    return call->alone || tempi_collective_is_packed_alone(call->function)
               ? tempi_node_part_alone(call->node)
               : tempi_node_part_of(call->comm, call->node);
}

/* The processes of the node decide alike; one that is alone as it likes. */
bool tempi_split_wanted(const tempi_collective *call, const tempi_blocks *out,
                        const tempi_blocks *in)
{
    const tempi_node_part *part = tempi_split_part(call);
    if (!part)
        return false;
    bool *carried = &call->node->carried[call->function];
    tempi_collective here = *call;
    here.node = part->node;
    here.comm = part->comm;
    if (!*carried || part->node->size == 1)
        *carried = tempi_collective_wanted(&here, out, in);
    return *carried;
}

static void restrict_side(const tempi_node_part *part, const tempi_divided_edges *edges,
                          tempi_blocks *side)
{
    side->edges = &edges->here;
    side->in_place = side->in_place >= 0 ? part->node->rank : -1;
}

bool tempi_split_restrict(const tempi_collective *call, tempi_blocks *out, tempi_blocks *in)
{
    tempi_node_part *part = tempi_split_part(call);
    const tempi_divided_edges *to = tempi_node_part_edges(part, call->node, out->edges),
                              *from = tempi_node_part_edges(part, call->node, in->edges);
    if (!to || !from)
        return false;
    restrict_side(part, to, out);
    restrict_side(part, from, in);
    return true;
}

bool tempi_split_open(const tempi_collective *call, tempi_blocks *out, tempi_blocks *in,
                      tempi_remote *remote, int *result)
{
    tempi_node_part *part = tempi_split_part(call);
    const tempi_divided_edges *to = tempi_node_part_edges(part, call->node, out->edges),
                              *from = tempi_node_part_edges(part, call->node, in->edges);
    *result = to && from ? tempi_remote_open(call, out, to, in, from, remote)
                         : tempi_blocks_no_memory(call->comm);
    if (*result != MPI_SUCCESS)
        return true;
    restrict_side(part, to, out);
    restrict_side(part, from, in);
    return part->node->size > 1 || tempi_remote_packs(remote);
}

static int pass_on(void *state)
{
    int rc = tempi_remote_start(state, false);
    if (rc == MPI_SUCCESS)
        rc = tempi_remote_pass(state, TEMPI_REMOTE_BLOCKING, NULL);
    return tempi_remote_end(state, rc);
}

/* Blocks of derived datatypes that the library has to pack are counted as left to it. */
void tempi_split_count(const tempi_collective *call, const tempi_remote *remote)
{
    const int64_t left = remote->out.derived + remote->in.derived;
    tempi_stat_add(TEMPI_STAT_collectives_split, 1);
    if (left > 0)
        tempi_fallback_add(call->function, left);
}

static int carry(const tempi_collective *call, tempi_blocks *out, tempi_blocks *in,
                 tempi_remote *remote)
{
    const tempi_meanwhile meanwhile = {pass_on, remote};
    const double start = tempi_trace_begin();
    const int rc = tempi_block_exchange(tempi_split_part(call)->node, out, in, &meanwhile);
    tempi_split_count(call, remote);
    tempi_stat_add(TEMPI_STAT_collective_bytes, out->bytes);
    tempi_trace_end(start, "exchange", call->name, out->bytes);
    return rc;
}

bool tempi_split_carry(const tempi_collective *call, const tempi_blocks *out,
                       const tempi_blocks *in, int *result)
{
    tempi_blocks here_out = *out, here_in = *in;
    tempi_remote remote = {.reorders = call->node->misordered[call->function]};
    if (!(remote.reorders && tempi_split_part(call)) && !tempi_split_wanted(call, out, in))
        return false;
    bool ours = tempi_split_open(call, &here_out, &here_in, &remote, result);
    if (remote.reorders && *result == MPI_SUCCESS)
        ours |= tempi_remote_reorder(&remote);
    if (ours && *result == MPI_SUCCESS)
        *result = carry(call, &here_out, &here_in, &remote);
    tempi_remote_close(&remote);
    return ours;
}
