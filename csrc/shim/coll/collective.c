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
#include "exchange/exchange.h"
#include "shim/coll/blocks.h"
#include "shim/comm/peer_class.h"
#include "shim/request/deferred_sends.h"
#include "transfer/staging.h"

#include <sched.h>
#include <stdlib.h>

bool tempi_collectives;

static bool crowded; /* more ranks than cores */

void tempi_collective_start(void)
{
    tempi_collectives = tempi_config.collectives == TEMPI_COLLECTIVES_AUTO;
    crowded = tempi_peer_crowded();
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

/* While it waits a process lets the library progress its other messages, which the process that it
 * waits for may need. `state`: a request that never completes, made when it is needed first: to
 * test it makes the library progress all messages. A probe does not on MPICH, where MPI_COMM_SELF
 * has a queue of its own, and elsewhere only if it finds nothing. */
static void idle(void *state, int64_t waited)
{
    enum { SPINS = 64, YIELDS = 16 };
    MPI_Request *request = state;
    if (waited % (crowded ? 1 : SPINS) != 0) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
        return;
    }
    int flag;
    if (tempi_pending_any())
        tempi_progress();
    if (*request == MPI_REQUEST_NULL)
        (void)tempi_proxy_start(request);
    else
        (void)tempi_lib.Test(request, &flag, MPI_STATUS_IGNORE);
    if (crowded || waited > SPINS * YIELDS)
        sched_yield();
}

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
               good = tempi_exchange_run(flows, nout, from, nin, idle, &waiting) && own;
    if (waiting != MPI_REQUEST_NULL)
        tempi_proxy_end(&waiting);
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

/* The same in all processes. */
static bool wanted(const tempi_collective *call, const tempi_node_comm *node,
                   const tempi_blocks *out, const tempi_blocks *in)
{
    if (tempi_collective_has_types_of_blocks(call->function))
        return true;
    const int mine = tempi_bounces() || tempi_blocks_derived(out) || tempi_blocks_derived(in);
    int any = mine;
    return (node->size == 1 ||
            tempi_lib.Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, call->comm) == MPI_SUCCESS) &&
           any;
}

static bool decide(const tempi_collective *call, tempi_node_comm *node, const tempi_blocks *out,
                   const tempi_blocks *in)
{
    bool *carried = &node->carried[call->function];
    if (!*carried)
        *carried = wanted(call, node, out, in) && tempi_node_comm_connect(call->comm, node);
    return *carried;
}

/* ---- entry ----------------------------------------------------------------------------------- */

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
    if (call->root < 0 || call->root >= node->size)
        return false;
    tempi_edges_one(&node->one, node->size, call->root);
    const bool at_root = call->root == node->rank;
    const tempi_edges *others = at_root ? &node->all : &node->none;
    *out = call->pattern == TEMPI_PATTERN_TO_ROOT ? &node->one : others;
    *in = call->pattern == TEMPI_PATTERN_TO_ROOT ? others : &node->one;
    return true;
}

static bool is_in_place(const tempi_collective *call, const tempi_node_comm *node,
                        const tempi_bounce_argument *buffers)
{
    const bool rooted = call->pattern == TEMPI_PATTERN_TO_ROOT ||
                        call->pattern == TEMPI_PATTERN_FROM_ROOT;
    if (rooted && call->root != node->rank)
        return false;
    return !(call->pattern == TEMPI_PATTERN_FROM_ROOT ? buffers[1].does : buffers[0].does);
}

/* In place, the blocks of this process stay where they are; what it sends to others is in the other
 * buffer. */
static tempi_blocks side_of(const tempi_collective *call, const tempi_node_comm *node,
                            const tempi_bounce_argument *buffer, const tempi_edges *edges,
                            bool in_place)
{
    return (tempi_blocks){.comm = call->comm,
                          .call = call->name,
                          .buffer = buffer,
                          .entry = buffer->times == TEMPI_ONCE ? 0 : -1,
                          .edges = edges,
                          .kept = in_place ? node->rank : -1};
}

static bool carry_sides(const tempi_collective *call, tempi_node_comm *node, tempi_blocks *out,
                        tempi_blocks *in, int *result)
{
    if (tempi_blocks_refusable(out) || tempi_blocks_refusable(in) || !decide(call, node, out, in))
        return false;
    const int n = out->edges->n + in->edges->n;
    tempi_op few[32], *ops = n > 32 ? malloc((size_t)n * sizeof *ops) : few;
    if (!ops) {
        *result = tempi_blocks_no_memory(call->comm);
        return true;
    }
    out->operation = TEMPI_OP_SEND;
    in->operation = TEMPI_OP_RECV;
    out->ops = ops;
    in->ops = ops + out->edges->n;
    ++node->calls;
    *result = carry(call, node, out, in);
    tempi_blocks_close(out);
    tempi_blocks_close(in);
    if (ops != few)
        free(ops);
    return true;
}

bool tempi_collective_carry(const tempi_collective *call, const tempi_bounce_argument *buffers,
                            int *result)
{
    tempi_node_comm *node = call->node;
    const tempi_edges *to, *from;
    if (!find_edges(call, node, &to, &from))
        return false;
    const bool in_place = is_in_place(call, node, buffers);
    const bool receives_own = in_place && call->pattern == TEMPI_PATTERN_ALL;
    tempi_blocks out = side_of(call, node, receives_own ? &buffers[1] : &buffers[0], to, in_place);
    tempi_blocks in = side_of(call, node, &buffers[1], from, in_place);
    if (receives_own && buffers[0].times == TEMPI_ONCE) /* MPI_Allgather: the own block for all */
        out.entry = node->rank;
    return carry_sides(call, node, &out, &in, result);
}
