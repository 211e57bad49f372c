#include "shim/coll/device_offer.h"
#include "base/config.h"
#include "cuda/device.h"
#include "cuda/ipc.h"
#include "exchange/nest_walk.h"
#include "shim/coll/shape_layout.h"
#include "shim/comm/comm_stream.h"

#include <stdlib.h>
#include <string.h>

enum { ALLOCATIONS = 64 }; /* of one description */

/* What it begins with; its allocations and its shapes follow, of which memory.file is the index of
 * the allocation. */
typedef struct offer_head {
    int32_t nshapes, nallocations;
} offer_head;

typedef struct draft {
    offer_head head;
    tempi_ipc_memory allocations[ALLOCATIONS];
    tempi_nest_shape *shapes;
} draft;

static int64_t bytes_of(const offer_head *head)
{
    return (int64_t)sizeof *head + head->nallocations * (int64_t)sizeof(tempi_ipc_memory) +
           head->nshapes * (int64_t)sizeof(tempi_nest_shape);
}

/* ---- describing ------------------------------------------------------------------------------ */

static bool add_allocation(const tempi_memory *memory, draft *d, int32_t *index)
{
    for (*index = 0; *index < d->head.nallocations; ++*index)
        if (d->allocations[*index].buffer_id == memory->buffer_id)
            return true;
    if (*index == ALLOCATIONS || !tempi_ipc_export(memory->device, memory->base, memory->size,
                                                   memory->buffer_id, &d->allocations[*index]))
        return false;
    ++d->head.nallocations;
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

/* False: not all of the blocks can be described. `memory`: of the last block. */
static bool describe(tempi_memory *memory, const tempi_op *ops, int n, draft *d)
{
    d->head = (offer_head){0, 0};
    for (int i = 0; i < n; ++i) {
        tempi_nest_shape *shape = &d->shapes[d->head.nshapes];
        if (ops[i].n == 0)
            continue;
        if (!tempi_block_is_resident(&ops[i]) || !tempi_nest_describe(&ops[i], shape))
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

/* ---- those of all processes ------------------------------------------------------------------ */

bool tempi_device_offers_open(tempi_device_offers *offers, int processes)
{
    offers->end = calloc((size_t)processes, sizeof *offers->end);
    return offers->end != NULL;
}

static int64_t begin_of(const tempi_device_offers *offers, int process)
{
    return process > 0 ? offers->end[process - 1] : 0;
}

void tempi_device_offers_skip(tempi_device_offers *offers, int process)
{
    offers->end[process] = begin_of(offers, process);
}

static bool has_room(tempi_device_offers *offers, int64_t bytes)
{
    char *more = realloc(offers->bytes, (size_t)bytes);
    if (more)
        offers->bytes = more;
    return more != NULL;
}

/* False: it takes more than `most` bytes, or there is no memory. */
static bool write_down(const draft *d, tempi_device_offers *offers, int process, int64_t most)
{
    const size_t allocations = (size_t)d->head.nallocations * sizeof d->allocations[0];
    const int64_t at = offers->end[process], n = bytes_of(&d->head);
    if (n > most || !has_room(offers, at + n))
        return false;
    char *to = offers->bytes + at;
    memcpy(to, &d->head, sizeof d->head);
    memcpy(to + sizeof d->head, d->allocations, allocations);
    memcpy(to + sizeof d->head + allocations, d->shapes,
           (size_t)d->head.nshapes * sizeof d->shapes[0]);
    offers->end[process] = at + n;
    return true;
}

bool tempi_device_offers_add(tempi_device_offers *offers, int process, tempi_blocks *out,
                             int64_t most)
{
    const tempi_edges *edges = out->edges;
    const int blocks = tempi_edges_count(edges, process);
    tempi_device_offers_skip(offers, process);
    if (!tempi_config.cuda_ipc || blocks == 0 || blocks > most / (int64_t)sizeof(tempi_nest_shape))
        return false;
    draft d = {.shapes = malloc((size_t)blocks * sizeof *d.shapes)};
    const bool good = d.shapes &&
                      describe(&out->memory, out->ops + edges->first[process], blocks, &d) &&
                      write_down(&d, offers, process, most);
    free(d.shapes);
    return good;
}

const void *tempi_device_offers_of(const tempi_device_offers *offers, int process, int64_t *n)
{
    *n = offers->end ? offers->end[process] - begin_of(offers, process) : 0;
    return *n > 0 ? offers->bytes + begin_of(offers, process) : NULL;
}

int tempi_device_offers_stage_rest(const tempi_device_offers *offers, int processes,
                                   tempi_blocks *out)
{
    const tempi_edges *edges = out->edges;
    int result = MPI_SUCCESS;
    int64_t n;
    for (int i = 0, k = 0; i < processes && result == MPI_SUCCESS; ++i) {
        if (tempi_device_offers_of(offers, i, &n))
            k = edges->first[i + 1];
        else if (i + 1 == processes || tempi_device_offers_of(offers, i + 1, &n))
            result = tempi_blocks_stage(out, k, edges->first[i + 1] - k);
    }
    return result;
}

void tempi_device_offers_close(tempi_device_offers *offers)
{
    free(offers->bytes);
    free(offers->end);
    *offers = (tempi_device_offers){0};
}

/* The program's stream that is waited for: one that it has named, else the communicator's; 0: the
 * default one. */
static uintptr_t stream_of(const tempi_blocks *side)
{
    const uintptr_t named = tempi_cuda_named_stream(tempi_direction_of(side->operation));
    return named ? named : tempi_stream_of(side->comm);
}

/* The device of all blocks in device memory; -1: there are none, or several. */
static int only_device(const tempi_blocks *side)
{
    int found = -1;
    for (int i = 0; i < side->n; ++i)
        if (tempi_block_is_resident(&side->ops[i])) {
            if (found >= 0 && side->ops[i].device != found)
                return -1;
            found = side->ops[i].device;
        }
    return found;
}

int tempi_device_await_program(const tempi_blocks *side, const tempi_blocks *before)
{
    const uintptr_t theirs = stream_of(side);
    int status = TEMPI_OK;
    int last = before && stream_of(before) == theirs ? only_device(before) : -1;
    for (int i = 0; i < side->n && status == TEMPI_OK; ++i) {
        const tempi_op *op = &side->ops[i];
        if (!tempi_block_is_resident(op) || op->device == last)
            continue;
        last = op->device;
        status = theirs ? tempi_cuda_wait_stream(last, theirs)
                        : tempi_cuda_await_program(last, tempi_direction_of(side->operation));
    }
    return status == TEMPI_OK ? MPI_SUCCESS : tempi_message_failed(side->comm);
}

/* ---- accepting ------------------------------------------------------------------------------- */

static bool accept_block(tempi_device_moves *moves, const tempi_op *blocks,
                         const tempi_nest_shape *shape, const tempi_ipc_memory *memory)
{
    const tempi_op *to = &blocks[shape->block];
    tempi_device_move move = {.to = *to, .sender = blocks, .pin = -1};
    uint64_t address;
    if (!tempi_block_is_resident(to) || to->n != shape->run * shape->runs ||
        !tempi_ipc_open(to->device, memory, &address, &move.pin))
        return false;
    const tempi_layout *layout = tempi_shape_layout(shape);
    move.from = (tempi_op){.layout = layout,
                           .count = 1,
                           .mem = (void *)(uintptr_t)(address + (shape->first - memory->base)),
                           .n = to->n,
                           .direction = TEMPI_PACK,
                           .method = TEMPI_METHOD_DEVICE,
                           .device = to->device,
                           .stream = to->stream};
    const bool added = layout && tempi_device_moves_add(moves, &move);
    if (layout)
        tempi_layout_release(layout);
    if (!added)
        tempi_ipc_close(move.pin);
    return added;
}

bool tempi_device_offer_accept(tempi_device_moves *moves, const tempi_op *blocks, int64_t nblocks,
                               int64_t total, const void *offer, int64_t n)
{
    const offer_head *head = offer;
    const tempi_ipc_memory *allocations = (const void *)(head + 1);
    const tempi_nest_shape *shapes = (const void *)(allocations + head->nallocations);
    const int before = moves->n;
    int64_t bytes = 0;
    bool good = tempi_config.cuda_ipc && n == bytes_of(head);
    for (int i = 0; good && i < head->nshapes; ++i) {
        const tempi_nest_shape *shape = &shapes[i];
        const int32_t allocation = shape->memory.file;
        good = shape->block >= 0 && shape->block < nblocks && allocation >= 0 &&
               allocation < head->nallocations &&
               accept_block(moves, blocks, shape, &allocations[allocation]);
        bytes += shape->run * shape->runs;
    }
    good &= bytes == total;
    if (!good)
        tempi_device_moves_drop(moves, before);
    return good;
}
