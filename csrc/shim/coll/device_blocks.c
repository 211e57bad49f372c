#include "shim/coll/device_blocks.h"
#include "base/config.h"
#include "base/stats.h"
#include "cuda/batch.h"
#include "cuda/ipc.h"
#include "exchange/nest_walk.h"
#include "shim/coll/shape_layout.h"
#include "shim/comm/comm_stream.h"
#include "shim/p2p/message.h"

#include <stdlib.h>
#include <string.h>

enum { ALLOCATIONS = 16 }; /* of one offer */

struct tempi_device_move {
    tempi_op from, to;
    const tempi_layout *layout; /* of `from`, to be released; NULL: it is the program's */
    int pin;                    /* of another process's memory; -1: it is the own process's */
};

/* What an offer begins with; its allocations and its shapes follow, of which memory.file is the
 * index of the allocation. */
typedef struct offer_head {
    int32_t nshapes, nallocations;
} offer_head;

/* ---- moves ----------------------------------------------------------------------------------- */

static bool plans(const tempi_op *from, const tempi_op *to)
{
    tempi_op op = *from;
    tempi_cuda_device *device = tempi_cuda_device_get(to->device);
    op.into = to;
    return device && tempi_cuda_move_plans(device, &op) == TEMPI_OK;
}

/* False: the device cannot do it, or there is no memory. */
static bool add_move(tempi_device_blocks *device, const tempi_device_move *move)
{
    if (!plans(&move->from, &move->to))
        return false;
    if (device->n == device->room) {
        const int room = device->room > 0 ? 2 * device->room : 32;
        void *moves = realloc(device->moves, (size_t)room * sizeof *device->moves);
        if (!moves)
            return false;
        device->moves = moves;
        device->room = room;
    }
    device->moves[device->n++] = *move;
    return true;
}

/* Drops those from that one on. */
static void drop_moves(tempi_device_blocks *device, int first)
{
    while (device->n > first) {
        const tempi_device_move *move = &device->moves[--device->n];
        if (move->layout)
            tempi_layout_release(move->layout);
        if (move->pin >= 0)
            tempi_ipc_close(move->pin);
    }
}

static void note_moves(const tempi_device_blocks *device)
{
    for (int i = 0; i < device->n; ++i) {
        const tempi_device_move *move = &device->moves[i];
        tempi_stat_add(move->pin < 0 ? TEMPI_STAT_self_moves : TEMPI_STAT_peer_moves, 1);
        if (move->pin >= 0)
            tempi_stat_add(TEMPI_STAT_peer_moved_bytes, move->from.n);
    }
}

/* Into memory of this process, after the work of the streams that it named. */
static bool run_moves(tempi_device_blocks *device)
{
    tempi_op few[32], *ops = device->n > 32 ? malloc((size_t)device->n * sizeof *ops) : few;
    if (!ops)
        return false;
    for (int i = 0; i < device->n; ++i) {
        ops[i] = device->moves[i].from;
        ops[i].into = &device->moves[i].to;
    }
    const bool good = tempi_cuda_settle(TEMPI_UNPACK) == TEMPI_OK &&
                      tempi_pack_run(ops, device->n) == TEMPI_OK;
    if (ops != few)
        free(ops);
    return good;
}

static bool read_all(void *state)
{
    tempi_device_blocks *device = state;
    const bool good = device->n == 0 || run_moves(device);
    if (good)
        note_moves(device);
    else if (device->result == MPI_SUCCESS)
        device->result = tempi_message_failed(device->out->comm);
    drop_moves(device, 0);
    return good;
}

/* ---- blocks of the process itself ------------------------------------------------------------ */

/* Both were moved, or will be. */
static void take_out(tempi_op *op)
{
    *op = (tempi_op){.direction = op->direction, .method = TEMPI_METHOD_HOST};
}

static bool fits(const tempi_op *from, const tempi_op *to)
{
    return tempi_block_is_resident(from) && tempi_block_is_resident(to) &&
           from->device == to->device && from->n <= to->n;
}

static void prepare_own(tempi_device_blocks *device)
{
    const int own = device->node->rank;
    const tempi_edges *out = device->out->edges, *in = device->in->edges;
    const int nout = tempi_edges_count(out, own), nin = tempi_edges_count(in, own);
    for (int i = 0; i < nout && i < nin; ++i) {
        tempi_op *from = &device->out->ops[out->first[own] + i],
                 *to = &device->in->ops[in->first[own] + i];
        const tempi_device_move move = {.from = *from, .to = *to, .pin = -1};
        if (!fits(from, to) || !add_move(device, &move))
            continue;
        take_out(from);
        take_out(to);
    }
}

/* ---- offering -------------------------------------------------------------------------------- */

typedef struct draft {
    offer_head head;
    tempi_ipc_memory allocations[ALLOCATIONS];
    tempi_nest_shape shapes[64];
} draft;

static bool add_allocation(const tempi_memory *memory, draft *d, int32_t *index)
{
    tempi_ipc_memory made;
    if (!tempi_ipc_export(memory->device, memory->base, memory->size, memory->buffer_id, &made))
        return false;
    for (*index = 0; *index < d->head.nallocations; ++*index)
        if (d->allocations[*index].buffer_id == made.buffer_id)
            return true;
    if (*index == ALLOCATIONS)
        return false;
    d->allocations[d->head.nallocations++] = made;
    return true;
}

/* Whether all of the nest lies in that allocation. */
static bool lies_in(const tempi_nest_shape *shape, const tempi_memory *memory)
{
    uint64_t from, to;
    tempi_nest_bounds(shape, &from, &to);
    return memory->kind == TEMPI_MEMORY_DEVICE && from >= memory->base &&
           to <= memory->base + (uint64_t)memory->size;
}

/* False: not all of the blocks can be offered. */
static bool describe(tempi_memory *memory, const tempi_op *ops, int n, draft *d)
{
    d->head = (offer_head){0, 0};
    for (int i = 0; i < n; ++i) {
        tempi_nest_shape *shape = &d->shapes[d->head.nshapes];
        if (ops[i].n == 0)
            continue;
        if (i >= 64 || !tempi_block_is_resident(&ops[i]) || !tempi_nest_describe(&ops[i], shape))
            return false;
        if (shape->first - memory->base >= (uint64_t)memory->size)
            tempi_memory_ask((const void *)(uintptr_t)shape->first, memory);
        if (!lies_in(shape, memory) || !add_allocation(memory, d, &shape->memory.file))
            return false;
        shape->block = i;
        ++d->head.nshapes;
    }
    return d->head.nshapes > 0;
}

static int64_t bytes_of(const offer_head *head)
{
    return (int64_t)sizeof *head + head->nallocations * (int64_t)sizeof(tempi_ipc_memory) +
           head->nshapes * (int64_t)sizeof(tempi_nest_shape);
}

static bool has_room(tempi_device_blocks *device, int64_t bytes)
{
    char *offers = realloc(device->offers, (size_t)bytes);
    if (offers)
        device->offers = offers;
    return offers != NULL;
}

static bool is_paused(tempi_ring_end *end)
{
    const bool is = end->paused > 0;
    end->paused -= is;
    return is;
}

/* Adds the offer to that process; false: what goes there is to be staged. */
static bool add_offer(tempi_device_blocks *device, int process, int64_t at)
{
    draft d;
    const tempi_edges *edges = device->out->edges;
    tempi_ring_end *end = &device->node->to[process];
    if (!tempi_config.cuda_ipc || is_paused(end) ||
        !describe(&device->out->memory, device->out->ops + edges->first[process],
                  tempi_edges_count(edges, process), &d))
        return false;
    const int64_t n = bytes_of(&d.head);
    if (n > (int64_t)end->capacity / 4 || !has_room(device, at + n))
        return false;
    char *out = device->offers + at;
    const size_t allocations = (size_t)d.head.nallocations * sizeof d.allocations[0];
    memcpy(out, &d.head, sizeof d.head);
    memcpy(out + sizeof d.head, d.allocations, allocations);
    memcpy(out + sizeof d.head + allocations, d.shapes,
           (size_t)d.head.nshapes * sizeof d.shapes[0]);
    device->offered[process] = at + n;
    return true;
}

/* The offers follow each other in the order of the processes. False: there are none. */
static bool make_offers(tempi_device_blocks *device)
{
    const int size = device->node->size;
    int64_t at = 0;
    if (size == 1 || device->out->nresident == 0)
        return false;
    device->offered = calloc((size_t)size, sizeof *device->offered);
    for (int i = 0; device->offered && i < size; ++i) {
        device->offered[i] = at;
        if (i != device->node->rank && add_offer(device, i, at))
            at = device->offered[i];
    }
    return at > 0;
}

static int64_t offer_begin(const tempi_device_blocks *device, int process)
{
    return process > 0 ? device->offered[process - 1] : 0;
}

static bool is_offered(const tempi_device_blocks *device, int process)
{
    return device->offered && device->offered[process] > offer_begin(device, process);
}

/* ---- staging --------------------------------------------------------------------------------- */

/* In one launch, as far as blocks that are not offered follow each other. */
static int stage_rest(tempi_device_blocks *device)
{
    const tempi_edges *edges = device->out->edges;
    int result = MPI_SUCCESS;
    for (int i = 0, k = 0; i < device->node->size && result == MPI_SUCCESS; ++i) {
        const bool ends = i + 1 == device->node->size || is_offered(device, i + 1);
        if (is_offered(device, i))
            k = edges->first[i + 1];
        else if (ends)
            result = tempi_blocks_stage(device->out, k, edges->first[i + 1] - k);
    }
    return result;
}

static int stage_own(tempi_device_blocks *device)
{
    const tempi_edges *in = device->in->edges;
    const int own = device->node->rank;
    return tempi_blocks_stage(device->in, in->first[own], tempi_edges_count(in, own));
}

/* Its blocks are those of one process on one side. */
static bool is_sent(const tempi_device_blocks *device, const tempi_flow *flow)
{
    return flow->blocks >= device->out->ops && flow->blocks < device->out->ops + device->out->n;
}

static bool stage_flow(void *state, tempi_flow *flow)
{
    tempi_device_blocks *device = state;
    tempi_blocks *side = is_sent(device, flow) ? device->out : device->in;
    const int rc = tempi_blocks_stage(side, (int)(flow->blocks - side->ops), (int)flow->n);
    if (rc != MPI_SUCCESS && device->result == MPI_SUCCESS)
        device->result = rc;
    return rc == MPI_SUCCESS;
}

/* ---- accepting ------------------------------------------------------------------------------- */

static bool accept_block(tempi_device_blocks *device, const tempi_op *to,
                         const tempi_nest_shape *shape, const tempi_ipc_memory *memory)
{
    tempi_device_move move = {.to = *to, .pin = -1};
    uint64_t address;
    if (!tempi_block_is_resident(to) || to->n != shape->run * shape->runs ||
        !tempi_ipc_open(to->device, memory, &address, &move.pin))
        return false;
    move.layout = tempi_shape_layout(shape);
    move.from = (tempi_op){.layout = move.layout,
                           .count = 1,
                           .mem = (void *)(uintptr_t)(address + (shape->first - memory->base)),
                           .n = to->n,
                           .direction = TEMPI_PACK,
                           .method = TEMPI_METHOD_DEVICE,
                           .device = to->device,
                           .stream = to->stream};
    if (move.layout && add_move(device, &move))
        return true;
    if (move.layout)
        tempi_layout_release(move.layout);
    tempi_ipc_close(move.pin);
    return false;
}

static bool accept(void *state, const tempi_flow *flow, const void *offer, int64_t n)
{
    tempi_device_blocks *device = state;
    const offer_head *head = offer;
    const tempi_ipc_memory *allocations = (const void *)(head + 1);
    const tempi_nest_shape *shapes = (const void *)(allocations + head->nallocations);
    const int before = device->n;
    int64_t bytes = 0;
    bool good = tempi_config.cuda_ipc && n == bytes_of(head);
    for (int i = 0; good && i < head->nshapes; ++i) {
        const tempi_nest_shape *shape = &shapes[i];
        const int32_t allocation = shape->memory.file;
        good = shape->block >= 0 && shape->block < flow->n && allocation >= 0 &&
               allocation < head->nallocations &&
               accept_block(device, &flow->blocks[shape->block], shape, &allocations[allocation]);
        bytes += shape->run * shape->runs;
    }
    good &= bytes == flow->bytes;
    if (!good)
        drop_moves(device, before);
    return good;
}

/* ---- one exchange ---------------------------------------------------------------------------- */

/* Other processes read what is offered now: the program's work on it must be done. */
static int await_program(const tempi_device_blocks *device)
{
    const uintptr_t theirs = tempi_cuda_named_stream(TEMPI_PACK) != 0
                                 ? 0
                                 : tempi_stream_of(device->out->comm);
    int status = TEMPI_OK, last = -1;
    for (int i = 0; i < device->out->n && status == TEMPI_OK; ++i) {
        const tempi_op *op = &device->out->ops[i];
        if (!tempi_block_is_resident(op) || op->device == last)
            continue;
        last = op->device;
        status = theirs ? tempi_cuda_wait_stream(last, theirs) : tempi_cuda_await_program(last);
    }
    return status == TEMPI_OK ? MPI_SUCCESS : tempi_message_failed(device->out->comm);
}

void tempi_device_blocks_begin(tempi_device_blocks *device, const tempi_node_comm *node,
                               tempi_blocks *out, tempi_blocks *in)
{
    *device = (tempi_device_blocks){.hooks = {device, accept, stage_flow, read_all},
                                    .node = node,
                                    .out = out,
                                    .in = in,
                                    .result = MPI_SUCCESS};
    if (out->nresident + in->nresident == 0)
        return;
    prepare_own(device);
    const bool offers = make_offers(device);
    int rc = stage_rest(device);
    if (rc == MPI_SUCCESS)
        rc = stage_own(device);
    if (rc == MPI_SUCCESS && offers)
        rc = await_program(device);
    device->result = rc;
}

void tempi_device_blocks_join(const tempi_device_blocks *device, int process, tempi_flow *flow)
{
    if (device->result != MPI_SUCCESS) { /* the others do not wait for it */
        flow->n = 0;
        flow->failed = flow->streams = true;
        return;
    }
    if (device->out->nresident + device->in->nresident == 0)
        return;
    flow->device = &device->hooks;
    for (int64_t k = 0; k < flow->n; ++k)
        flow->resident |= tempi_block_is_resident(&flow->blocks[k]);
    if (!is_sent(device, flow) || !is_offered(device, process))
        return;
    flow->offer = device->offers + offer_begin(device, process);
    flow->offer_bytes = device->offered[process] - offer_begin(device, process);
}

int tempi_device_blocks_end(tempi_device_blocks *device)
{
    if (device->result == MPI_SUCCESS)
        (void)read_all(device);
    else
        drop_moves(device, 0);
    free(device->moves);
    free(device->offers);
    free(device->offered);
    return device->result;
}
