/* A call, once its communicator is set up (node_comm.h):
 *
 *   1. Decide whether to carry it, as all processes do.
 *   2. Describe the blocks of both sides (blocks.h).
 *   3. Exchange those with other processes; meanwhile move the own ones from layout to layout.
 *   4. Unpack what came into staging buffers.
 */
#include "shim/coll/collective.h"
#include "base/config.h"
#include "base/stats.h"
#include "base/trace.h"
#include "choose/rule.h"
#include "exchange/exchange.h"
#include "shim/coll/coll_request.h"
#include "shim/coll/sides.h"
#include "shim/request/waiting.h"
#include "transfer/staging.h"

#include <stdlib.h>

bool tempi_collectives;

/* Open MPI 5.0 delivers wrong blocks in nonblocking and persistent collectives of neighbours: there
 * the processes must agree before the first one. */
static bool wrong_neighbors;

static void learn_library(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;
    (void)tempi_lib.Get_library_version(version, &length);
    const tempi_library library = tempi_library_of(version);
    wrong_neighbors = library == TEMPI_LIBRARY_OPENMPI4 || library == TEMPI_LIBRARY_OPENMPI5;
}

void tempi_collective_start(void)
{
    learn_library();

    tempi_collectives = tempi_config.collectives == TEMPI_COLLECTIVES_AUTO;
    tempi_waiting_start();
    tempi_exchange_use(tempi_stage_get, tempi_stage_put);
}

void tempi_collective_stop(void)
{
    tempi_collectives = false;
    tempi_node_comm_stop();
}

void tempi_collective_clear(void)
{
    tempi_node_comm_clear();
}

/* ---- the exchange ---------------------------------------------------------------------------- */

static tempi_flow flow_of(const tempi_node_comm *node, const tempi_blocks *s, int process)
{
    const int first = s->edges->first[process];
    tempi_flow flow = {.end = s->operation == TEMPI_OP_SEND ? &node->to[process]
                                                            : &node->from[process],
                       .blocks = s->ops + first,
                       .n = tempi_edges_count(s->edges, process),
                       .call = node->calls};
    for (int k = 0; k < flow.n; ++k)
        flow.bytes += flow.blocks[k].n;
    return flow;
}

/* Flows of all other processes, beginning after this one, so that not all send to the same one
 * first. Returns their number. */
static int flows_of(const tempi_node_comm *node, const tempi_blocks *s, tempi_flow *flows, int step)
{
    int n = 0;
    for (int i = 1; i < node->size; ++i) {
        const int process = (node->rank + step * i + node->size) % node->size;
        if (tempi_edges_count(s->edges, process) > 0)
            flows[n++] = flow_of(node, s, process);
    }
    return n;
}

/* False: a block did not fit. */
static bool move_own(const tempi_node_comm *node, const tempi_blocks *out, const tempi_blocks *in)
{
    const int nout = tempi_edges_count(out->edges, node->rank),
              nin = tempi_edges_count(in->edges, node->rank);
    return tempi_exchange_self(out->ops + out->edges->first[node->rank],
                               in->ops + in->edges->first[node->rank], nout < nin ? nout : nin);
}

/* What is received from a process replaces what was sent to it. The flows from the processes are in
 * the reverse order of those to them. */
static void keep_order(tempi_flow *in, int nin, tempi_flow *out, int nout)
{
    for (int i = 0; i < nin; ++i)
        in[i].source = &out[nout - 1 - i];
    for (int k = 0; k < nout; ++k) /* nor may the receiver read what is replaced meanwhile */
        out[k].streams = true;
}

static int exchange(MPI_Comm comm, const tempi_node_comm *node, const tempi_blocks *out,
                    const tempi_blocks *in)
{
    tempi_flow few[32], *flows = few;
    if (node->size > 16)
        flows = malloc(2 * (size_t)node->size * sizeof *flows);
    if (!flows)
        return tempi_blocks_no_memory(comm);
    const int nout = flows_of(node, out, flows, 1);
    tempi_flow *from = flows + nout;
    const int nin = flows_of(node, in, from, -1);
    if (out->buffer == in->buffer && out->entry < 0) /* in place, and each block for one process */
        keep_order(from, nin, flows, nout);
    tempi_exchange_begin(flows, nout, from, nin);
    MPI_Request waiting = MPI_REQUEST_NULL;
    const bool own = move_own(node, out, in),
               good = tempi_exchange_run(flows, nout, from, nin, tempi_waiting_idle, &waiting) &&
                      own;
    tempi_waiting_end(&waiting);
    if (flows != few)
        free(flows);
    if (good)
        return MPI_SUCCESS;
    tempi_lib.Comm_call_errhandler(comm, MPI_ERR_TRUNCATE);
    return MPI_ERR_TRUNCATE;
}

static int carry(const tempi_collective *call, const tempi_node_comm *node, tempi_blocks *out,
                 tempi_blocks *in)
{
    const double start = tempi_trace_begin();
    int rc = tempi_blocks_describe(out);
    if (rc == MPI_SUCCESS)
        rc = tempi_blocks_describe(in);
    if (rc == MPI_SUCCESS)
        rc = exchange(call->comm, node, out, in);
    if (rc == MPI_SUCCESS)
        rc = tempi_blocks_unpack(in);
    tempi_stat_add(TEMPI_STAT_collectives, 1);
    tempi_stat_add(TEMPI_STAT_collective_bytes, out->bytes);
    tempi_trace_end(start, "exchange", call->name, out->bytes);
    return rc;
}

/* ---- who carries it -------------------------------------------------------------------------- */

bool tempi_collective_wanted(const tempi_collective *call, const tempi_blocks *out,
                             const tempi_blocks *in)
{
    if (tempi_collective_has_types_of_blocks(call->function))
        return true;
    const int mine = tempi_bounces() || tempi_blocks_derived(out) || tempi_blocks_derived(in);
    int any = mine;
    return (call->node->size == 1 ||
            tempi_lib.Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, call->comm) == MPI_SUCCESS) &&
           any;
}

static bool decide(const tempi_collective *call, tempi_node_comm *node, const tempi_blocks *out,
                   const tempi_blocks *in)
{
    bool *carried = &node->carried[call->function];
    if (!*carried)
        *carried = tempi_collective_wanted(call, out, in) &&
                   tempi_node_comm_connect(call->comm, node, TEMPI_CONNECT_RINGS);
    return *carried;
}

/* ---- entry ----------------------------------------------------------------------------------- */

static int carry_with_memory(const tempi_collective *call, tempi_blocks *out, tempi_blocks *in)
{
    const int n = out->edges->n + in->edges->n;
    tempi_op few[32], *ops = n > 32 ? malloc((size_t)n * sizeof *ops) : few;
    if (!ops)
        return tempi_blocks_no_memory(call->comm);
    out->ops = ops;
    in->ops = ops + out->edges->n;
    ++call->node->calls;
    const int rc = carry(call, call->node, out, in);
    tempi_blocks_close(out);
    tempi_blocks_close(in);
    if (ops != few)
        free(ops);
    return rc;
}

bool tempi_collective_carry(const tempi_collective *call, const tempi_bounce_argument *buffers,
                            int *result)
{
    tempi_blocks out, in;
    if (!tempi_sides_of(call, buffers, &out, &in) || !decide(call, call->node, &out, &in))
        return false;
    *result = carry_with_memory(call, &out, &in);
    return true;
}

void tempi_collective_connect(MPI_Comm comm)
{
    const bool needed = tempi_collectives && wrong_neighbors && comm != MPI_COMM_NULL;
    tempi_node_comm *node = needed ? tempi_node_comm_of(comm) : NULL;
    if (node && node->together)
        (void)tempi_node_comm_connect(comm, node, TEMPI_CONNECT_POSTS);
}

void tempi_collective_agree(MPI_Comm comm)
{
    tempi_node_comm *node = comm != MPI_COMM_NULL ? tempi_node_comm_of(comm) : NULL;
    if (node && node->wants_posts)
        (void)tempi_node_comm_connect(comm, node, TEMPI_CONNECT_POSTS);
}
