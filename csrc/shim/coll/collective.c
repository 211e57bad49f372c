/* A call, once its communicator is set up (node_comm.h):
 *
 *   1. Describe each block as an operation: packed from the program's memory directly, or, in the
 *      memory of a device and for types that tempi cannot decode, first into a staging buffer.
 *   2. Exchange all blocks with the other processes; meanwhile move those to this process itself
 *      from layout to layout.
 *   3. Unpack the blocks in staging buffers.
 */
#include "shim/coll/collective.h"
#include "base/config.h"
#include "base/log.h"
#include "base/stats.h"
#include "base/thread.h"
#include "base/trace.h"
#include "cuda/device.h"
#include "exchange/exchange.h"
#include "shim/coll/node_comm.h"
#include "shim/comm/comm_stream.h"
#include "shim/comm/peer_class.h"
#include "shim/impl.h"
#include "shim/p2p/message.h"
#include "shim/request/deferred_sends.h"
#include "transfer/staging.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

bool tempi_collectives;

static bool crowded; /* more ranks than cores */

void tempi_collective_start(void)
{
    tempi_collectives = tempi_config.collectives == TEMPI_COLLECTIVES_AUTO;
    crowded = tempi_peer_crowded();
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

/* ---- one block ------------------------------------------------------------------------------- */

/* A staging buffer for the packed bytes of a block. */
typedef struct staged {
    bool carried;          /* by tempi: `message` owns the buffer */
    tempi_message message; /* else the library packs */
    void *packed;
    void *mem;
    int64_t bytes;
    MPI_Count count;
    MPI_Datatype type;
} staged;

/* One side of a call. */
typedef struct half {
    const tempi_bounce_argument *buffer;
    const tempi_edges *edges;
    tempi_operation operation;
    tempi_op *blocks; /* by the order of the edges */
    staged *staged;   /* NULL until one is needed */
    int nstaged;
} half;

static int64_t number(tempi_numbers numbers, int64_t i)
{
    return numbers.wide ? ((const int64_t *)numbers.of)[i] : ((const int *)numbers.of)[i];
}

static bool packs(const half *s)
{
    return s->operation == TEMPI_OP_SEND;
}

/* No object lies in the first page: the address is NULL, passed by mistake. */
static bool plausible(const char *mem, const tempi_layout *layout)
{
    return (uintptr_t)mem + (uintptr_t)layout->true_lb >= 4096;
}

static int out_of_memory(MPI_Comm comm)
{
    tempi_lib.Comm_call_errhandler(comm, MPI_ERR_NO_MEM);
    return MPI_ERR_NO_MEM;
}

static int library_pack(MPI_Comm comm, const staged *s)
{
    MPI_Count position = 0;
    return tempi_fwd_Pack(&tempi_lib, s->mem, s->count, s->type, s->packed, s->bytes, &position,
                          comm);
}

static int library_unpack(MPI_Comm comm, const staged *s)
{
    MPI_Count position = 0;
    return tempi_fwd_Unpack(&tempi_lib, s->packed, s->bytes, &position, s->mem, s->count, s->type,
                            comm);
}

/* The library judges the type: an error is raised before anything is sent. */
static int stage_by_library(MPI_Comm comm, const half *side, staged *s, tempi_op *block)
{
    int size = 0;
    const int rc = tempi_lib.Type_size(s->type, &size);
    if (rc != MPI_SUCCESS)
        return rc;
    MPI_Count bytes = size;
    if (size == MPI_UNDEFINED && tempi_lib.Type_size_x(s->type, &bytes) != MPI_SUCCESS)
        return MPI_ERR_TYPE;
    s->bytes = bytes * s->count;
    if (s->bytes == 0) /* MPICH 4.0 divides by it */
        return MPI_SUCCESS;
    if (!(s->packed = tempi_stage_get_beyond(s->bytes)))
        return out_of_memory(comm);
    block->mem = s->packed;
    block->n = s->bytes;
    return packs(side) ? library_pack(comm, s) : MPI_SUCCESS;
}

static int stage(MPI_Comm comm, half *side, int64_t count, MPI_Datatype type, char *mem,
                 tempi_op *block, const char *call)
{
    if (!side->staged)
        side->staged = calloc((size_t)side->edges->n, sizeof *side->staged);
    if (!side->staged)
        return out_of_memory(comm);
    staged *s = &side->staged[side->nstaged];
    *s = (staged){.mem = mem, .count = count, .type = type};
    s->carried = tempi_message_force(mem, count, type, side->operation, &s->message);
    if (s->carried && !s->message.op.packed) { /* contiguous host memory */
        *block = s->message.op;
        return MPI_SUCCESS;
    }
    ++side->nstaged;
    if (!s->carried)
        return stage_by_library(comm, side, s, block);
    s->message.wire = MPI_PACKED; /* shared memory needs no gap */
    s->message.op.stream = tempi_stream_of(comm);
    s->packed = s->message.op.packed;
    block->mem = s->packed;
    block->n = s->message.op.n;
    if (!packs(side) || tempi_message_pack(&s->message, call) == MPI_SUCCESS)
        return MPI_SUCCESS;
    return tempi_message_failed(comm);
}

static int describe(MPI_Comm comm, half *side, int i, tempi_op *block, const char *call)
{
    const tempi_bounce_argument *buffer = side->buffer;
    const int64_t count = number(buffer->counts, i);
    *block = (tempi_op){.direction = tempi_direction_of(side->operation),
                        .method = TEMPI_METHOD_HOST};
    if (count <= 0)
        return MPI_SUCCESS;
    const MPI_Datatype handle = buffer->types ? buffer->types[i] : buffer->type;
    char *const mem = (char *)(uintptr_t)buffer->address + number(buffer->displacements, i);
    const tempi_type *type = tempi_memory_mixed || tempi_config.check ? NULL
                                                                       : tempi_type_any(handle);
    if (!type || !plausible(mem, type->layout) ||
        __builtin_mul_overflow(count, type->size, &block->n))
        return stage(comm, side, count, handle, mem, block, call);
    block->layout = type->layout;
    block->count = count;
    block->mem = mem;
    return MPI_SUCCESS;
}

static int describe_all(MPI_Comm comm, half *side, const char *call)
{
    for (int k = 0; k < side->edges->n; ++k) {
        const int rc = describe(comm, side, side->edges->block[k], &side->blocks[k], call);
        if (rc != MPI_SUCCESS)
            return rc;
    }
    return MPI_SUCCESS;
}

static int unpack_staged(MPI_Comm comm, const half *side, const char *call)
{
    int result = MPI_SUCCESS;
    for (int i = 0; i < side->nstaged; ++i) {
        const staged *s = &side->staged[i];
        int rc = MPI_SUCCESS;
        if (!s->carried)
            rc = s->bytes > 0 ? library_unpack(comm, s) : MPI_SUCCESS;
        else if (tempi_message_unpack(&s->message, s->message.op.n, call) != MPI_SUCCESS)
            rc = tempi_message_failed(comm);
        result = result == MPI_SUCCESS ? rc : result;
    }
    return result;
}

static void close_side(half *side)
{
    for (int i = 0; i < side->nstaged; ++i)
        if (side->staged[i].carried)
            tempi_message_drop(&side->staged[i].message);
        else if (side->staged[i].packed)
            tempi_stage_put(side->staged[i].packed);
    free(side->staged);
}

/* ---- the exchange ---------------------------------------------------------------------------- */

/* While it waits a process lets the library progress its other messages, which the process that it
 * waits for may need. */
static void idle(void *state, int64_t waited)
{
    enum { SPINS = 64, YIELDS = 16 };
    (void)state;
    if (waited % (crowded ? 1 : SPINS) != 0) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
        return;
    }
    int flag;
    if (tempi_pending_any())
        tempi_progress();
    (void)tempi_lib.Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
    if (crowded || waited > SPINS * YIELDS)
        sched_yield();
}

static tempi_flow flow_of(const tempi_node_comm *node, const half *s, int process)
{
    const int first = s->edges->first[process];
    tempi_flow flow = {.end = packs(s) ? &node->to[process] : &node->from[process],
                       .blocks = s->blocks + first,
                       .n = tempi_edges_count(s->edges, process),
                       .call = node->calls};
    for (int k = 0; k < flow.n; ++k)
        flow.bytes += flow.blocks[k].n;
    return flow;
}

/* Flows of all other processes, beginning after this one, so that not all send to the same one
 * first. Returns their number. */
static int flows_of(const tempi_node_comm *node, const half *s, tempi_flow *flows, int step)
{
    int n = 0;
    for (int i = 1; i < node->size; ++i) {
        const int process = (node->rank + step * i + node->size) % node->size;
        if (tempi_edges_count(s->edges, process) > 0)
            flows[n++] = flow_of(node, s, process);
    }
    return n;
}

/* False: a block is longer than the one that receives it. */
static bool move_own(const tempi_node_comm *node, const half *out, const half *in)
{
    const int nout = tempi_edges_count(out->edges, node->rank),
              nin = tempi_edges_count(in->edges, node->rank), n = nout < nin ? nout : nin;
    const tempi_op *from = out->blocks + out->edges->first[node->rank],
                   *to = in->blocks + in->edges->first[node->rank];
    bool fit = true;
    for (int i = 0; i < n; ++i)
        fit &= from[i].n <= to[i].n;
    tempi_exchange_self(from, to, n);
    return fit;
}

/* In place, what is received replaces what was sent from there. */
static void keep_order(tempi_flow *in, int nin, tempi_flow *out, int nout)
{
    for (int i = 0; i < nin; ++i)
        for (int k = 0; k < nout; ++k)
            if (in[i].bytes > 0 && out[k].bytes > 0 && in[i].blocks[0].mem == out[k].blocks[0].mem)
                in[i].source = &out[k];
    for (int k = 0; k < nout; ++k) /* nor may the receiver read what is replaced meanwhile */
        out[k].streams = true;
}

static int exchange(MPI_Comm comm, const tempi_node_comm *node, const half *out, const half *in,
                    bool in_place)
{
    tempi_flow few[32], *flows = few;
    if (node->size > 16)
        flows = malloc(2 * (size_t)node->size * sizeof *flows);
    if (!flows)
        return out_of_memory(comm);
    const int nout = flows_of(node, out, flows, 1);
    tempi_flow *from = flows + nout;
    const int nin = flows_of(node, in, from, -1);
    if (in_place)
        keep_order(from, nin, flows, nout);
    tempi_exchange_begin(flows, nout, from, nin);
    bool good = in_place || move_own(node, out, in);
    good &= tempi_exchange_run(flows, nout, from, nin, idle, NULL);
    if (flows != few)
        free(flows);
    if (good)
        return MPI_SUCCESS;
    tempi_lib.Comm_call_errhandler(comm, MPI_ERR_TRUNCATE);
    return MPI_ERR_TRUNCATE;
}

static int64_t bytes_of(const half *s)
{
    int64_t bytes = 0;
    for (int k = 0; k < s->edges->n; ++k)
        bytes += s->blocks[k].n;
    return bytes;
}

static int carry(MPI_Comm comm, const tempi_node_comm *node, half *out, half *in, bool in_place,
                 const char *call)
{
    const double start = tempi_trace_begin();
    int rc = describe_all(comm, out, call);
    if (rc == MPI_SUCCESS)
        rc = describe_all(comm, in, call);
    if (rc == MPI_SUCCESS)
        rc = exchange(comm, node, out, in, in_place);
    if (rc == MPI_SUCCESS && in->nstaged > 0)
        rc = unpack_staged(comm, in, call);
    const int64_t bytes = bytes_of(out);
    tempi_stat_add(TEMPI_STAT_collectives, 1);
    tempi_stat_add(TEMPI_STAT_collective_bytes, bytes);
    tempi_trace_end(start, "exchange", call, bytes);
    return rc;
}

/* ---- entry ----------------------------------------------------------------------------------- */

static bool find_edges(tempi_node_comm *node, MPI_Comm comm, const tempi_bounce_argument *receive,
                       const tempi_edges **out, const tempi_edges **in)
{
    *out = *in = &node->all;
    if (receive->times == TEMPI_LARGE_COUNT_PEERS)
        return true;
    *out = &node->out;
    *in = &node->in;
    return node->out.first ||
           tempi_edges_of_neighbors(comm, node->size, &node->out, &node->in);
}

/* Arguments that the library has to refuse. */
static bool refusable(const tempi_bounce_argument *buffer, const tempi_edges *edges)
{
    if (!buffer->counts.of || !buffer->displacements.of || !buffer->types)
        return edges->n > 0;
    for (int k = 0; k < edges->n; ++k) {
        const int i = edges->block[k];
        const int64_t count = number(buffer->counts, i);
        if (count < 0 || (count > 0 && buffer->types[i] == MPI_DATATYPE_NULL))
            return true;
    }
    return false;
}

bool tempi_collective_carry(MPI_Comm comm, const tempi_bounce_argument *buffers, const char *call,
                            int *result)
{
    tempi_node_comm *node = tempi_node_comm_of(comm);
    const tempi_edges *to, *from;
    if (!node || !find_edges(node, comm, &buffers[1], &to, &from))
        return false;
    const bool in_place = !buffers[0].does;
    if (refusable(&buffers[1], from) || (!in_place && refusable(&buffers[0], to)))
        return false;
    tempi_op few[32], *blocks = few;
    if (to->n + from->n > 32)
        blocks = malloc((size_t)(to->n + from->n) * sizeof *blocks);
    if (!blocks) {
        *result = out_of_memory(comm);
        return true;
    }
    half out = {.buffer = in_place ? &buffers[1] : &buffers[0],
                .edges = to,
                .operation = TEMPI_OP_SEND,
                .blocks = blocks};
    half in = {.buffer = &buffers[1],
               .edges = from,
               .operation = TEMPI_OP_RECV,
               .blocks = blocks + to->n};
    ++node->calls;
    *result = carry(comm, node, &out, &in, in_place, call);
    close_side(&out);
    close_side(&in);
    if (blocks != few)
        free(blocks);
    return true;
}
