#include "shim/coll/block_exchange.h"
#include "base/clock.h"
#include "exchange/exchange.h"
#include "exchange/local_copy.h"
#include "shim/coll/device_blocks.h"
#include "shim/request/waiting.h"

#include <stdlib.h>

static tempi_flow flow_of(const tempi_node_comm *node, const tempi_blocks *s, int process,
                          const tempi_device_blocks *device)
{
    const int first = s->edges->first[process];
    tempi_flow flow = {.end = s->operation == TEMPI_OP_SEND ? &node->to[process]
                                                            : &node->from[process],
                       .blocks = s->ops + first,
                       .n = tempi_edges_count(s->edges, process),
                       .bytes = tempi_blocks_bytes_with(s, process),
                       .gathers = s->gathers,
                       .call = node->calls};
    tempi_device_blocks_join(device, process, &flow);
    return flow;
}

/* Flows of all other processes, beginning after this one, so that not all send to the same one
 * first. Returns their number. */
static int flows_of(const tempi_device_blocks *device, const tempi_blocks *s, tempi_flow *flows,
                    int step)
{
    const tempi_node_comm *node = device->node;
    int n = 0;
    for (int i = 1; i < node->size; ++i) {
        const int process = (node->rank + step * i + node->size) % node->size;
        if (tempi_edges_count(s->edges, process) > 0)
            flows[n++] = flow_of(node, s, process, device);
    }
    return n;
}

/* Whether the lines of a call's blocks exceed the cache that the processes share. */
static bool exceeds_cache(const tempi_node_comm *node, const tempi_blocks *out,
                          const tempi_blocks *in)
{
    return (tempi_local_lines(out->ops, out->n) + tempi_local_lines(in->ops, in->n)) * node->size >
           tempi_cache_bytes();
}

bool tempi_block_move_own(tempi_node_comm *node, const tempi_blocks *out, const tempi_blocks *in)
{
    enum { LARGE = 1 << 20 }; /* bytes; fewer stay in the cache of one core */
    const int nout = tempi_edges_count(out->edges, node->rank),
              nin = tempi_edges_count(in->edges, node->rank), n = nout < nin ? nout : nin;
    const tempi_op *from = out->ops + out->edges->first[node->rank],
                   *to = in->ops + in->edges->first[node->rank];
    if (tempi_local_lines(to, n) >= LARGE && exceeds_cache(node, out, in))
        return tempi_local_copy_large(&node->own_copies, from, to, n);
    return tempi_local_copy(from, to, n);
}

/* Of flows that are not short. Their process has other work, too, such as own blocks. */
static bool find_one_way(tempi_flow *out, int nout, const tempi_node_comm *node,
                         const tempi_blocks *in, double *busy)
{
    bool any = false;
    for (int i = 0; i < nout; ++i) {
        out[i].one_way = out[i].bytes >= TEMPI_COPY_LEAST &&
                         tempi_blocks_are_one_way(in, (int)(out[i].end - node->to), out[i].bytes);
        out[i].busy = out[i].one_way ? busy : NULL;
        any |= out[i].one_way;
    }
    return any;
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

static int truncated(MPI_Comm comm)
{
    tempi_lib.Comm_call_errhandler(comm, MPI_ERR_TRUNCATE);
    return MPI_ERR_TRUNCATE;
}

static int act(const tempi_meanwhile *meanwhile)
{
    return meanwhile ? meanwhile->act(meanwhile->state) : MPI_SUCCESS;
}

static bool is_in_place(const tempi_blocks *out, const tempi_blocks *in)
{
    return out->buffer == in->buffer && out->entry < 0; /* and each block for one process */
}

static int run(tempi_device_blocks *device, const tempi_blocks *out, const tempi_blocks *in,
               tempi_flow *flows, const tempi_meanwhile *meanwhile)
{
    tempi_node_comm *node = device->node;
    const int nout = flows_of(device, out, flows, 1);
    tempi_flow *from = flows + nout;
    const int nin = flows_of(device, in, from, -1);
    double busy = 0;
    const bool clocked = find_one_way(flows, nout, node, in, &busy) || in->gathers;
    for (int i = 0; i < nin && in->gathers; ++i)
        from[i].busy = &busy;
    if (is_in_place(out, in))
        keep_order(from, nin, flows, nout);
    tempi_exchange_begin(flows, nout, from, nin);
    const int rc = act(meanwhile);
    MPI_Request waiting = MPI_REQUEST_NULL;
    const double start = clocked ? tempi_clock() : 0;
    const bool own = device->result != MPI_SUCCESS || tempi_block_move_own(node, out, in);
    busy += clocked ? tempi_clock() - start : 0;
    const bool good = tempi_exchange_run(flows, nout, from, nin, tempi_waiting_idle, &waiting) &&
                      own;
    tempi_waiting_end(&waiting);
    const int moved = tempi_device_blocks_end(device);
    if (rc != MPI_SUCCESS || moved != MPI_SUCCESS)
        return rc != MPI_SUCCESS ? rc : moved;
    return good ? MPI_SUCCESS : truncated(out->comm);
}

static int exchange(tempi_node_comm *node, tempi_blocks *out, tempi_blocks *in,
                    const tempi_meanwhile *meanwhile)
{
    tempi_device_blocks device;
    tempi_flow few[32],
        *flows = node->size <= 16 ? few : malloc(2 * (size_t)node->size * sizeof *flows);
    if (!flows) {
        (void)act(meanwhile);
        return tempi_blocks_no_memory(out->comm);
    }
    tempi_device_blocks_begin(&device, node, out, in);
    const int rc = run(&device, out, in, flows, meanwhile);
    if (flows != few)
        free(flows);
    return rc;
}

/* Of own blocks alone, in host memory: what is done for others takes a third of a short call. */
static int move_alone(tempi_node_comm *node, const tempi_blocks *out, const tempi_blocks *in)
{
    return tempi_block_move_own(node, out, in) ? MPI_SUCCESS : truncated(out->comm);
}

static int carry(tempi_node_comm *node, tempi_blocks *out, tempi_blocks *in,
                 const tempi_meanwhile *meanwhile)
{
    out->stays = in->stays = out->buffer != in->buffer;
    int rc = tempi_blocks_describe(out);
    if (rc == MPI_SUCCESS)
        rc = tempi_blocks_describe(in);
    if (rc != MPI_SUCCESS) {
        (void)act(meanwhile);
        return rc;
    }
    const bool alone = !meanwhile && !tempi_memory_mixed && tempi_blocks_are_own(out, node->rank) &&
                       tempi_blocks_are_own(in, node->rank);
    rc = alone ? move_alone(node, out, in) : exchange(node, out, in, meanwhile);
    return rc == MPI_SUCCESS ? tempi_blocks_unpack(in) : rc;
}

static int with_operations(tempi_node_comm *node, tempi_blocks *out, tempi_blocks *in,
                           const tempi_meanwhile *meanwhile)
{
    const int n = out->edges->n + in->edges->n;
    tempi_op few[32], *ops = n > 32 ? malloc((size_t)n * sizeof *ops) : few;
    if (!ops) {
        node->failed = true;
        (void)act(meanwhile);
        return tempi_blocks_no_memory(out->comm);
    }
    out->ops = ops;
    in->ops = ops + out->edges->n;
    const int rc = carry(node, out, in, meanwhile);
    node->failed |= rc != MPI_SUCCESS;
    tempi_blocks_close(out);
    tempi_blocks_close(in);
    if (ops != few)
        free(ops);
    return rc;
}

int tempi_block_exchange(tempi_node_comm *node, tempi_blocks *out, tempi_blocks *in,
                         const tempi_meanwhile *meanwhile)
{
    ++node->calls;
    return with_operations(node, out, in, meanwhile);
}

int tempi_block_exchange_own(tempi_node_comm *node, tempi_blocks *out, tempi_blocks *in)
{
    return with_operations(node, out, in, NULL);
}
