#include "shim/coll/remote_blocks.h"
#include "base/stats.h"
#include "exchange/block_bytes.h"
#include "shim/coll/neighbor_order.h"
#include "transfer/staging.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- which blocks are packed ----------------------------------------------------------------- */

static bool has_addresses(const tempi_remote *remote)
{
    return remote->function == TEMPI_FUNCTION_Neighbor_alltoallw;
}

/* Whether one count applies to all blocks, which follow each other by their numbers. */
static bool is_uniform(const tempi_bounce_argument *buffer)
{
    return !buffer->counts.of && buffer->times != TEMPI_ONCE;
}

/* What is known of the blocks of one side. */
typedef struct survey {
    int64_t bytes, better; /* of all; of those that tempi is expected to be faster with */
    bool *packs;           /* each of them */
} survey;

/* Bytes of a derived datatype; 0: predefined, or the library's to judge. */
static int64_t derived_bytes(const tempi_block_entry *e)
{
    int64_t size;
    return e->count > 0 && !tempi_type_named(e->type) && tempi_type_derived(e->type, &size)
               ? size * e->count
               : 0;
}

static void look(const tempi_remote *remote, const tempi_blocks *side, tempi_operation operation,
                 int process, int k, survey *out)
{
    const tempi_block_entry e = tempi_block_entry_of(side->buffer, tempi_block_number(side, k));
    const tempi_type *type = e.count > 0 ? tempi_type_any(e.type) : NULL;
    if (!type)
        return;
    const int64_t bytes = e.count * type->size;
    out->packs[k] = bytes > 0 && bytes <= INT_MAX &&
                    tempi_message_wins(type, operation,
                                       tempi_peer_of(remote->comm, process - remote->peers_begin),
                                       bytes);
    out->bytes += bytes;
    out->better += out->packs[k] ? bytes : 0;
}

/* Whether the library cannot read the blocks. */
static bool is_out_of_reach(const tempi_blocks *side)
{
    return tempi_bounces() && (side->buffer->address == MPI_BOTTOM ||
                               tempi_memory_of(side->buffer->address) != TEMPI_MEMORY_HOST);
}

/* Whether blocks without places of their own come in the wrong order. */
static bool needs_places(const tempi_remote *remote, const tempi_blocks *side)
{
    return remote->reorders && is_uniform(side->buffer) && side->operation == TEMPI_OP_RECV;
}

/* In place, both sides have the choice of what is sent. `process`: of each block. Places of packed
 * blocks must fit an int, as not every library has functions for more. */
static void choose(const tempi_remote *remote, const tempi_blocks *side, const int *process,
                   survey *out)
{
    const bool all = is_out_of_reach(side),
               second = remote->in_place && side->operation == TEMPI_OP_RECV;
    for (int k = 0; k < side->edges->n; ++k)
        look(remote, side, side->operation, process[k], k, out);
    if (!all && has_addresses(remote))
        return;
    const bool most = second ? remote->out.packed.n > 0
                             : all || needs_places(remote, side) ||
                                   (2 * out->better > out->bytes && out->bytes <= INT_MAX);
    for (int k = 0; k < side->edges->n; ++k)
        out->packs[k] = most;
}

/* ---- the library's arguments ----------------------------------------------------------------- */

/* Of the arrays; all blocks have count 0. */
static int allocate(const tempi_remote *remote, const tempi_blocks *all, tempi_remote_side *side)
{
    const int times = all->buffer->times;
    int rc = MPI_SUCCESS, entries = 1;
    if (times != TEMPI_ONCE)
        rc = tempi_large_count_entries(remote->comm, (enum tempi_large_count_length)times,
                                       &entries);
    if (rc != MPI_SUCCESS)
        return rc;
    const size_t n = (size_t)entries + 1;
    side->counts = calloc(n, sizeof *side->counts + sizeof *side->displacements);
    side->types = malloc(n * sizeof *side->types);
    side->packed.block = malloc(((size_t)all->edges->n + 1) * sizeof *side->packed.block);
    side->places = malloc(((size_t)all->edges->n + 1) * sizeof *side->places);
    if (!side->counts || !side->types || !side->packed.block || !side->places)
        return tempi_blocks_no_memory(all->comm);
    side->displacements = (MPI_Aint *)(side->counts + n);
    for (size_t i = 0; i < n; ++i)
        side->types[i] = MPI_BYTE;
    return MPI_SUCCESS;
}

/* Bytes of all elements of an entry. */
static int64_t bytes_of(const tempi_block_entry *e)
{
    int64_t size = 0;
    const tempi_type *type = e->count > 0 ? tempi_type_any(e->type) : NULL;
    if (type)
        size = type->size;
    else if (e->count > 0 && !tempi_type_derived(e->type, &size)) {
        int plain = 0;
        (void)tempi_lib.Type_size(e->type, &plain);
        size = plain;
    }
    return e->count > 0 ? size * e->count : 0;
}

/* A block that is the library's. */
static void leave(const tempi_remote *remote, const tempi_blocks *all, int i,
                  tempi_remote_side *side)
{
    const tempi_block_entry e = tempi_block_entry_of(all->buffer, i);
    if (e.count <= 0)
        return;
    side->derived += derived_bytes(&e);
    side->counts[i] = e.count;
    side->types[i] = e.type;
    side->displacements[i] = (MPI_Aint)e.displacement;
    if (has_addresses(remote))
        side->displacements[i] += (MPI_Aint)all->buffer->address;
}

/* The places of the packed blocks in one buffer. */
static int place(const tempi_remote *remote, const tempi_blocks *all, tempi_remote_side *side)
{
    int64_t bytes = 0;
    for (int k = 0; k < side->packed.n; ++k) {
        const int i = side->packed.block[k];
        const tempi_block_entry e = tempi_block_entry_of(all->buffer, i);
        const int64_t n = side->counts[i] = bytes_of(&e);
        side->places[k] = is_uniform(all->buffer) ? i * n : bytes;
        side->displacements[i] = (MPI_Aint)side->places[k];
        bytes = side->places[k] + n > bytes ? side->places[k] + n : bytes;
        side->count = n;
    }
    if (!(side->bytes = tempi_stage_get_beyond(bytes + 1)))
        return tempi_blocks_no_memory(all->comm);
    for (int k = 0; has_addresses(remote) && k < side->packed.n; ++k)
        side->displacements[side->packed.block[k]] += (MPI_Aint)side->bytes;
    if (!has_addresses(remote))
        side->base = side->bytes;
    return MPI_SUCCESS;
}

/* A block that is sent to all is packed once. */
static int blocks_of(const tempi_blocks *all)
{
    return all->entry >= 0 && all->edges->n > 1 ? 1 : all->edges->n;
}

static int open_side(const tempi_remote *remote, const tempi_blocks *all, const int *process,
                     tempi_remote_side *side)
{
    int rc = allocate(remote, all, side);
    if (rc != MPI_SUCCESS)
        return rc;
    survey found = {.packs = calloc((size_t)all->edges->n + 1, sizeof *found.packs)};
    if (!found.packs)
        return tempi_blocks_no_memory(all->comm);
    choose(remote, all, process, &found);
    for (int k = 0; k < blocks_of(all); ++k) {
        const int i = tempi_block_number(all, k);
        if (found.packs[k])
            side->packed.block[side->packed.n++] = i;
        else
            leave(remote, all, i, side);
    }
    free(found.packs);
    side->blocks = *all;
    side->blocks.edges = &side->packed;
    side->blocks.in_place = -1;
    side->type = side->packed.n > 0 ? MPI_BYTE : all->buffer->type;
    side->count = all->buffer->count;
    side->base = has_addresses(remote) ? MPI_BOTTOM : all->buffer->address;
    return side->packed.n > 0 ? place(remote, all, side) : MPI_SUCCESS;
}

int tempi_remote_open(const tempi_collective *call, const tempi_blocks *out,
                      const tempi_divided_edges *to, const tempi_blocks *in,
                      const tempi_divided_edges *from, tempi_remote *remote)
{
    tempi_blocks sent = *out, received = *in;
    sent.edges = &to->there;
    received.edges = &from->there;
    *remote = (tempi_remote){.function = call->function,
                             .comm = call->comm,
                             .root = call->root,
                             .peers_begin = call->node->peers_begin,
                             .reorders = remote->reorders,
                             .in_place = out->buffer == in->buffer};
    const int rc = open_side(remote, &sent, to->process, &remote->out);
    return rc == MPI_SUCCESS ? open_side(remote, &received, from->process, &remote->in) : rc;
}

/* Of functions with one count: blocks that are packed have their places exchanged. */
static void exchange_places(tempi_remote_side *side, int i, int j)
{
    int64_t *first = NULL, *second = NULL;
    for (int k = 0; k < side->packed.n; ++k)
        if (side->packed.block[k] == i)
            first = &side->places[k];
        else if (side->packed.block[k] == j)
            second = &side->places[k];
    if (!first || !second)
        return;
    const int64_t place = *first;
    *first = *second;
    *second = place;
}

static void exchange_entries(tempi_remote_side *side, int i, int j)
{
    const MPI_Count count = side->counts[i];
    const MPI_Aint displacement = side->displacements[i];
    const MPI_Datatype type = side->types[i];
    side->counts[i] = side->counts[j];
    side->displacements[i] = side->displacements[j];
    side->types[i] = side->types[j];
    side->counts[j] = count;
    side->displacements[j] = displacement;
    side->types[j] = type;
}

static bool is_of_neighbors(const tempi_remote *remote)
{
    return remote->function == TEMPI_FUNCTION_Neighbor_alltoall ||
           remote->function == TEMPI_FUNCTION_Neighbor_alltoallv ||
           remote->function == TEMPI_FUNCTION_Neighbor_alltoallw;
}

bool tempi_remote_reorder(tempi_remote *remote)
{
    tempi_remote_side *in = &remote->in;
    const int dims = is_of_neighbors(remote) ? tempi_neighbor_dimensions(remote->comm) : 0;
    bool any = false;
    if (remote->function == TEMPI_FUNCTION_Neighbor_alltoall && in->packed.n == 0)
        return false; /* its blocks have no places of their own */
    for (int d = 0; d < dims; ++d) {
        const int before = 2 * d, after = before + 1;
        const bool concerned = (in->counts[before] > 0 || in->counts[after] > 0) &&
                               tempi_neighbors_are_one(remote->comm, d);
        if (!concerned || !tempi_neighbor_order_is_wrong(remote->function))
            continue;
        if (remote->function == TEMPI_FUNCTION_Neighbor_alltoall)
            exchange_places(in, before, after);
        else
            exchange_entries(in, before, after);
        any = true;
    }
    return any;
}

/* ---- packed blocks --------------------------------------------------------------------------- */

static int describe(tempi_remote_side *side, bool outlives)
{
    tempi_blocks *blocks = &side->blocks;
    if (side->packed.n == 0)
        return MPI_SUCCESS;
    blocks->outlives = outlives;
    blocks->bytes = 0;
    blocks->ops = calloc((size_t)side->packed.n + 1, sizeof *blocks->ops);
    return blocks->ops ? tempi_blocks_describe(blocks) : tempi_blocks_no_memory(blocks->comm);
}

/* Moves the bytes of all of them, to or from the buffer. */
static void move(const tempi_remote_side *side, char *at)
{
    for (int k = 0; k < side->packed.n; ++k) {
        const tempi_op *op = &side->blocks.ops[k];
        if (op->n > 0 && side->blocks.operation == TEMPI_OP_SEND)
            tempi_block_pack(op, 0, op->n, at + side->places[k]);
        else if (op->n > 0)
            tempi_block_unpack(op, 0, op->n, at + side->places[k]);
    }
}

/* What a start has made. */
static void forget(tempi_remote_side *side)
{
    if (side->blocks.ops)
        tempi_blocks_close(&side->blocks);
    free(side->blocks.ops);
    side->blocks.ops = NULL;
}

int tempi_remote_start(tempi_remote *remote, bool outlives)
{
    int rc = describe(&remote->out, false);
    if (rc == MPI_SUCCESS)
        rc = describe(&remote->in, outlives);
    if (rc == MPI_SUCCESS)
        move(&remote->out, remote->in_place ? remote->in.bytes : remote->out.bytes);
    forget(&remote->out);
    return rc;
}

int tempi_remote_end(tempi_remote *remote, int error)
{
    tempi_remote_side *in = &remote->in;
    int rc = error;
    if (error == MPI_SUCCESS && in->blocks.ops) {
        move(in, in->bytes);
        rc = tempi_blocks_unpack(&in->blocks);
    }
    tempi_stat_add(TEMPI_STAT_remote_bytes, remote->out.blocks.bytes + in->blocks.bytes);
    forget(in);
    return rc;
}

/* ---- the library's call ---------------------------------------------------------------------- */

/* A call in each of the forms. */
#define PASS(BLOCKING, NONBLOCKING, ...)                                     \
    return form == TEMPI_REMOTE_BLOCKING ? BLOCKING(&tempi_lib, __VA_ARGS__) \
           : form == TEMPI_REMOTE_NONBLOCKING                                \
               ? NONBLOCKING(&tempi_lib, __VA_ARGS__, request)               \
               : BLOCKING##_init(&tempi_lib, __VA_ARGS__, MPI_INFO_NULL, request)
#define SENT(TYPES)     base, out->counts, out->displacements, out->TYPES
#define RECEIVED(TYPES) to, in->counts, in->displacements, in->TYPES
#define SENT_EACH       base, out->count, out->type
#define RECEIVED_EACH   to, in->count, in->type

int tempi_remote_pass(const tempi_remote *remote, tempi_remote_form form, MPI_Request *request)
{
    const tempi_remote_side *out = &remote->out, *in = &remote->in;
    const void *base = remote->in_place ? MPI_IN_PLACE : out->base;
    void *const to = (void *)(uintptr_t)in->base;
    const MPI_Comm comm = remote->comm;
    const int root = remote->root;
    switch (remote->function) {
    case TEMPI_FUNCTION_Alltoallw:
        PASS(tempi_fwd_Alltoallw, tempi_fwd_Ialltoallw, SENT(types), RECEIVED(types), comm);
    case TEMPI_FUNCTION_Alltoallv:
        PASS(tempi_fwd_Alltoallv, tempi_fwd_Ialltoallv, SENT(type), RECEIVED(type), comm);
    case TEMPI_FUNCTION_Neighbor_alltoallw:
        PASS(tempi_fwd_Neighbor_alltoallw, tempi_fwd_Ineighbor_alltoallw, SENT(types),
             RECEIVED(types), comm);
    case TEMPI_FUNCTION_Neighbor_alltoallv:
        PASS(tempi_fwd_Neighbor_alltoallv, tempi_fwd_Ineighbor_alltoallv, SENT(type),
             RECEIVED(type), comm);
    case TEMPI_FUNCTION_Alltoall:
        PASS(tempi_fwd_Alltoall, tempi_fwd_Ialltoall, SENT_EACH, RECEIVED_EACH, comm);
    case TEMPI_FUNCTION_Neighbor_alltoall:
        PASS(tempi_fwd_Neighbor_alltoall, tempi_fwd_Ineighbor_alltoall, SENT_EACH, RECEIVED_EACH,
             comm);
    case TEMPI_FUNCTION_Neighbor_allgather:
        PASS(tempi_fwd_Neighbor_allgather, tempi_fwd_Ineighbor_allgather, SENT_EACH, RECEIVED_EACH,
             comm);
    case TEMPI_FUNCTION_Neighbor_allgatherv:
        PASS(tempi_fwd_Neighbor_allgatherv, tempi_fwd_Ineighbor_allgatherv, SENT_EACH,
             RECEIVED(type), comm);
    case TEMPI_FUNCTION_Gatherv:
        PASS(tempi_fwd_Gatherv, tempi_fwd_Igatherv, base, out->counts[0], out->type, RECEIVED(type),
             root, comm);
    default:
        PASS(tempi_fwd_Scatterv, tempi_fwd_Iscatterv, SENT(type), to, in->counts[0], in->type, root,
             comm);
    }
}

static void close_side(tempi_remote_side *side)
{
    forget(side);
    if (side->bytes)
        tempi_stage_put(side->bytes);
    free(side->packed.block);
    free(side->places);
    free(side->counts);
    free(side->types);
}

void tempi_remote_close(tempi_remote *remote)
{
    close_side(&remote->out);
    close_side(&remote->in);
}
