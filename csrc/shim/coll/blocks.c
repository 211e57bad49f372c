#include "shim/coll/blocks.h"
#include "base/config.h"
#include "base/thread.h"
#include "datatype/layout.h"
#include "memory/known.h"
#include "memory/partition.h"
#include "shim/comm/comm_stream.h"
#include "shim/impl.h"
#include "transfer/staging.h"

#include <stdlib.h>

struct tempi_staged_block {
    bool carried;          /* by tempi: `message` owns the buffer */
    tempi_message message; /* else the library packs */
    void *packed;
    void *mem;
    int64_t bytes;
    MPI_Count count;
    MPI_Datatype type;
    bool owns_type;
    int pin; /* of its memory, which blocks of the call share */
};

/* Of a block that stayed: the datatype is owned unless it is named. */
struct tempi_late_block {
    int64_t count;
    MPI_Datatype type;
};

/* ---- entries of the buffer ------------------------------------------------------------------- */

static bool lacks_arrays(const tempi_bounce_argument *buffer, bool many)
{
    return many && buffer->times != TEMPI_ONCE &&
           ((buffer->types == NULL && buffer->in_bytes) ||
            (buffer->displacements.of == NULL) != (buffer->counts.of == NULL));
}

/* In place, the arguments of what stays are ignored: the root's of a rooted call may be anything.
 */
static bool stays(const tempi_blocks *blocks, int k)
{
    const tempi_edges *edges = blocks->edges;
    return blocks->in_place >= 0 && k >= edges->first[blocks->in_place] &&
           k < edges->first[blocks->in_place + 1];
}

static int64_t extent_of(const tempi_type *type, MPI_Datatype handle)
{
    MPI_Aint lb, extent = 0;
    if (type)
        return type->layout->extent;
    (void)tempi_lib.Type_get_extent(handle, &lb, &extent);
    return extent;
}

/* The buffer argument of a call with this block alone. */
static char *address_of(const tempi_blocks *blocks, const tempi_block_entry *e,
                        const tempi_type *type)
{
    return (char *)(uintptr_t)blocks->buffer->address +
           (e->displacement == 0 || e->in_bytes ? e->displacement
                                                : e->displacement * extent_of(type, e->type));
}

/* MPI_IN_PLACE where it is not allowed, or NULL, unless the type has absolute addresses. */
static bool lacks_memory(const tempi_blocks *blocks, const tempi_block_entry *e)
{
    const uintptr_t address = (uintptr_t)blocks->buffer->address;
    if (blocks->buffer->address == MPI_IN_PLACE)
        return true;
    const tempi_type *type = address == 0 ? tempi_type_any(e->type) : NULL;
    return type && type->size > 0 &&
           !tempi_address_plausible(address_of(blocks, e, type), type->layout);
}

bool tempi_blocks_refusable(const tempi_blocks *blocks, bool all)
{
    if (lacks_arrays(blocks->buffer, blocks->edges->n > 0))
        return true;
    for (int k = 0; k < blocks->edges->n; ++k) {
        if (!all && stays(blocks, k))
            continue;
        const tempi_block_entry e = tempi_block_entry_of(blocks->buffer,
                                                         tempi_block_number(blocks, k));
        if (e.count < 0 ||
            (e.count > 0 && (e.type == MPI_DATATYPE_NULL || lacks_memory(blocks, &e))))
            return true;
    }
    return false;
}

bool tempi_blocks_are_own(const tempi_blocks *blocks, int process)
{
    const tempi_edges *edges = blocks->edges;
    for (int k = 0; k < edges->n; ++k) {
        if (k == edges->first[process]) /* step over these */
            k = edges->first[process + 1];
        if (k < edges->n &&
            tempi_block_entry_of(blocks->buffer, tempi_block_number(blocks, k)).count != 0)
            return false;
    }
    return true;
}

bool tempi_blocks_derived(const tempi_blocks *blocks)
{
    int64_t size;
    for (int k = 0; k < blocks->edges->n; ++k) {
        if (stays(blocks, k))
            continue;
        const MPI_Datatype type =
            tempi_block_entry_of(blocks->buffer, tempi_block_number(blocks, k)).type;
        if (!tempi_type_named(type) && tempi_type_derived(type, &size))
            return true;
        if (!blocks->buffer->types)
            break; /* all have the same */
    }
    return false;
}

/* ---- staging buffers ------------------------------------------------------------------------- */

static bool packs(const tempi_blocks *blocks)
{
    return blocks->operation == TEMPI_OP_SEND;
}

static int library_pack(MPI_Comm comm, const tempi_staged_block *s)
{
    MPI_Count position = 0;
    return tempi_fwd_Pack(&tempi_lib, s->mem, s->count, s->type, s->packed, s->bytes, &position,
                          comm);
}

static int library_unpack(MPI_Comm comm, const tempi_staged_block *s)
{
    MPI_Count position = 0;
    return tempi_fwd_Unpack(&tempi_lib, s->packed, s->bytes, &position, s->mem, s->count, s->type,
                            comm);
}

/* Unpacks nothing. */
static int library_judges(MPI_Comm comm, const tempi_staged_block *s)
{
    MPI_Count position = 0;
    return tempi_fwd_Unpack(&tempi_lib, s->packed, 0, &position, s->mem, 0, s->type, comm);
}

/* The library judges the type: an error is raised before anything is sent, or awaited. */
static int stage_by_library(const tempi_blocks *blocks, tempi_staged_block *s, tempi_op *op)
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
    if (!(s->packed = tempi_stage_get_beyond(s->bytes))) {
        s->bytes = 0;
        return tempi_blocks_no_memory(blocks->comm);
    }
    op->mem = s->packed;
    op->n = s->bytes;
    return packs(blocks) ? library_pack(blocks->comm, s) : library_judges(blocks->comm, s);
}

static void free_type(tempi_staged_block *s)
{
    if (s->owns_type)
        tempi_lib.Type_free(&s->type);
}

static bool own_type(MPI_Datatype type, MPI_Datatype *own)
{
    *own = type;
    return tempi_type_named(type) || tempi_lib.Type_dup(type, own) == MPI_SUCCESS;
}

static void keep_layout(const tempi_blocks *blocks, const tempi_op *op)
{
    if (blocks->outlives && op->layout)
        tempi_layout_retain(op->layout);
}

static int stage(tempi_blocks *blocks, const tempi_block_entry *e, char *mem, tempi_op *op)
{
    if (!blocks->staged)
        blocks->staged = calloc((size_t)blocks->edges->n, sizeof *blocks->staged);
    if (!blocks->staged)
        return tempi_blocks_no_memory(blocks->comm);
    tempi_staged_block *s = &blocks->staged[blocks->nstaged];
    *s = (tempi_staged_block){.mem = mem, .count = e->count, .type = e->type, .pin = -1};
    if (blocks->outlives && !own_type(e->type, &s->type))
        return MPI_ERR_TYPE;
    s->owns_type = s->type != e->type;
    s->carried = tempi_message_force(mem, e->count, s->type, blocks->operation, &s->message);
    if (s->carried && !s->message.op.packed) { /* contiguous host memory */
        *op = s->message.op;
        keep_layout(blocks, op);
        free_type(s);
        return MPI_SUCCESS;
    }
    ++blocks->nstaged;
    if (!s->carried)
        return stage_by_library(blocks, s, op);
    s->message.wire = MPI_PACKED; /* shared memory needs no gap */
    s->message.op.stream = op->stream ? op->stream : tempi_stream_of(blocks->comm);
    s->packed = s->message.op.packed;
    s->pin = tempi_memory_pin((const char *)mem + s->message.op.layout->true_lb);
    op->mem = s->packed;
    op->n = s->message.op.n;
    return MPI_SUCCESS;
}

/* Packs, or unpacks, all that tempi carries from that one on, together. */
static int run_staged(const tempi_blocks *blocks, int first)
{
    int n = 0;
    const tempi_message **messages = malloc(((size_t)blocks->nstaged + 1) * sizeof *messages);
    if (!messages)
        return tempi_blocks_no_memory(blocks->comm);
    for (int i = first; i < blocks->nstaged; ++i)
        if (blocks->staged[i].carried)
            messages[n++] = &blocks->staged[i].message;
    const int rc = n > 0 ? tempi_messages_run(messages, n, blocks->call) : MPI_SUCCESS;
    free(messages);
    return rc == MPI_SUCCESS ? rc : tempi_message_failed(blocks->comm);
}

/* ---- all blocks ------------------------------------------------------------------------------ */

/* Whether the block lies in one allocation of a device, whose kernels reach all of it. */
static bool may_stay(tempi_blocks *blocks, const tempi_type *type, int64_t count, const char *mem)
{
    tempi_memory *memory = &blocks->memory;
    const char *first = mem + type->layout->true_lb;
    if (!blocks->stays || (blocks->outlives && !blocks->late) || tempi_config.check ||
        type->size == 0)
        return false;
    if ((uint64_t)(uintptr_t)first - memory->base >= (uint64_t)memory->size)
        tempi_memory_ask(first, memory);
    return memory->kind == TEMPI_MEMORY_DEVICE && memory->size > 0 &&
           !tempi_memory_may_partition(type->layout, count, mem, memory);
}

/* False: no memory. */
static bool keep_type(tempi_blocks *blocks, int k, const tempi_block_entry *e)
{
    if (!blocks->kept)
        blocks->kept = calloc((size_t)blocks->edges->n, sizeof *blocks->kept);
    MPI_Datatype own;
    if (!blocks->kept || !own_type(e->type, &own))
        return false;
    blocks->kept[k] = (struct tempi_late_block){e->count, own};
    return true;
}

static void free_kept(tempi_blocks *blocks)
{
    for (int k = 0; blocks->kept && k < blocks->n; ++k)
        if (blocks->kept[k].count > 0 && !tempi_type_named(blocks->kept[k].type))
            tempi_lib.Type_free(&blocks->kept[k].type);
    free(blocks->kept);
    blocks->kept = NULL;
}

/* The operation of a block that stays. */
static void stay(tempi_blocks *blocks, tempi_op *op)
{
    op->method = TEMPI_METHOD_DEVICE;
    op->device = blocks->memory.device;
    op->stream = tempi_stream_of(blocks->comm);
    ++blocks->nresident;
}

static int describe(tempi_blocks *blocks, int k, tempi_op *op)
{
    const tempi_block_entry e = tempi_block_entry_of(blocks->buffer, tempi_block_number(blocks, k));
    if (e.count <= 0)
        return MPI_SUCCESS;
    const tempi_type *type = tempi_type_any(e.type);
    char *const mem = address_of(blocks, &e, type);
    const bool good = type && tempi_address_plausible(mem, type->layout) &&
                      !__builtin_mul_overflow(e.count, type->size, &op->n);
    const bool resident = good && tempi_memory_mixed && may_stay(blocks, type, e.count, mem) &&
                          (!blocks->late || keep_type(blocks, k, &e));
    if (!good || ((tempi_memory_mixed || tempi_config.check) && !resident))
        return stage(blocks, &e, mem, op);
    op->layout = type->layout;
    op->count = e.count;
    op->mem = mem;
    if (resident)
        stay(blocks, op);
    keep_layout(blocks, op);
    return MPI_SUCCESS;
}

static tempi_block_entry entry_to_stage(const tempi_blocks *blocks, int k)
{
    if (!blocks->kept)
        return tempi_block_entry_of(blocks->buffer, tempi_block_number(blocks, k));
    return (tempi_block_entry){.count = blocks->kept[k].count, .type = blocks->kept[k].type};
}

static int stage_those(tempi_blocks *blocks, int k, int n)
{
    const int before = blocks->nstaged;
    for (const int end = k + n; k < end; ++k) {
        tempi_op *op = &blocks->ops[k];
        if (!tempi_block_is_resident(op))
            continue;
        const tempi_block_entry e = entry_to_stage(blocks, k);
        char *const mem = op->mem;
        if (blocks->outlives && op->layout)
            tempi_layout_release(op->layout);
        *op = (tempi_op){
            .direction = op->direction, .method = TEMPI_METHOD_HOST, .stream = op->stream};
        --blocks->nresident;
        const int rc = stage(blocks, &e, mem, op);
        if (rc != MPI_SUCCESS)
            return rc;
    }
    return blocks->nstaged > before && packs(blocks) ? run_staged(blocks, before) : MPI_SUCCESS;
}

/* A thread that lets tempi act on no call of its own may do this for a request of another time. */
int tempi_blocks_stage(tempi_blocks *blocks, int k, int n)
{
    const int disabled = tempi_this_thread.disabled;
    tempi_this_thread.disabled = 0;
    const int rc = stage_those(blocks, k, n);
    tempi_this_thread.disabled = disabled;
    return rc;
}

int tempi_blocks_describe(tempi_blocks *blocks)
{
    const tempi_edges *edges = blocks->edges;
    for (int k = 0; k < edges->n; ++k) {
        tempi_op *op = &blocks->ops[k];
        blocks->n = k + 1;
        *op = (tempi_op){.direction = tempi_direction_of(blocks->operation),
                         .method = TEMPI_METHOD_HOST};
        if (stays(blocks, k))
            continue;
        const int rc = describe(blocks, k, op);
        if (rc != MPI_SUCCESS)
            return rc;
        blocks->bytes += op->n;
    }
    return blocks->nstaged > 0 && packs(blocks) ? run_staged(blocks, 0) : MPI_SUCCESS;
}

int64_t tempi_blocks_bytes_with(const tempi_blocks *blocks, int process)
{
    int64_t bytes = 0;
    for (int i = blocks->edges->first[process]; i < blocks->edges->first[process + 1]; ++i)
        bytes += blocks->ops[i].n;
    return bytes;
}

bool tempi_blocks_are_one_way(const tempi_blocks *in, int process, int64_t bytes)
{
    return tempi_blocks_bytes_with(in, process) < bytes / 2;
}

void tempi_blocks_keep(tempi_blocks *blocks)
{
    blocks->outlives = true;
    for (int k = 0; k < blocks->n; ++k)
        keep_layout(blocks, &blocks->ops[k]);
}

int tempi_blocks_unpack(const tempi_blocks *blocks)
{
    int result = blocks->nstaged > 0 ? run_staged(blocks, 0) : MPI_SUCCESS;
    for (int i = 0; i < blocks->nstaged; ++i) {
        const tempi_staged_block *s = &blocks->staged[i];
        const int rc = s->carried || s->bytes == 0 ? MPI_SUCCESS : library_unpack(blocks->comm, s);
        result = result == MPI_SUCCESS ? rc : result;
    }
    return result;
}

void tempi_blocks_close(tempi_blocks *blocks)
{
    for (int i = 0; i < blocks->nstaged; ++i) {
        tempi_staged_block *s = &blocks->staged[i];
        if (s->carried)
            tempi_message_drop(&s->message);
        else if (s->packed)
            tempi_stage_put(s->packed);
        tempi_memory_unpin(s->pin);
        free_type(s);
    }
    free(blocks->staged);
    for (int k = 0; blocks->outlives && k < blocks->n; ++k)
        if (blocks->ops[k].layout)
            tempi_layout_release(blocks->ops[k].layout);
    free_kept(blocks);
    blocks->staged = NULL;
    blocks->nstaged = blocks->n = 0;
}
