#include "shim/p2p/message.h"
#include "base/config.h"
#include "base/log.h"
#include "base/stats.h"
#include "base/thread.h"
#include "base/trace.h"
#include "cuda/device.h"
#include "memory/partition.h"
#include "shim/comm/cuda_aware.h"
#include "shim/comm/peer_class.h"
#include "shim/p2p/device_method.h"
#include "shim/p2p/posted_receives.h"
#include "shim/type/typemap_check.h"
#include "transfer/packed_buffer.h"

#include <stdlib.h>

static bool leave(int reason)
{
    tempi_stat_add(reason, 1);
    return false;
}

void tempi_message_note(tempi_operation operation, const tempi_op *op)
{
    tempi_thread_cache *mine = tempi_stats_mine();
    tempi_message_count(mine, operation, op->layout, op->count, op->n);
    if (op->streamed)
        tempi_stat_add_to(mine, TEMPI_STAT_messages_streamed, 1);
}

static bool sends_or_receives(tempi_operation operation)
{
    return operation == TEMPI_OP_SEND || operation == TEMPI_OP_RECV;
}

/* Sets field by field: zeroing the struct first costs a short message more than filling it. */
static void make(const tempi_type *type, const void *buffer, MPI_Count count, int64_t bytes,
                 tempi_operation operation, tempi_message *out)
{
    tempi_op *op = &out->op;
    out->type = type;
    out->operation = operation;
    op->layout = type->layout;
    op->count = count;
    op->mem = (void *)(uintptr_t)buffer;
    op->packed = NULL;
    op->first = 0;
    op->n = bytes;
    op->direction = tempi_direction_of(operation);
    op->method = TEMPI_METHOD_HOST;
    op->device = 0;
    op->stream = 0;
    op->partial = false;
    op->streamed = false;
    op->pageable = false;
    op->parts = NULL;
    op->into = NULL;
    out->borrowed = false;
    out->open = false;
    out->wire = MPI_PACKED;
}

void tempi_message_of(const tempi_type *type, const void *buffer, MPI_Count count,
                      tempi_operation operation, void *packed, tempi_message *out)
{
    make(type, buffer, count, count * type->size, operation, out);
    out->op.packed = packed;
}

/* Whether it is a message to oneself, or a matched one that may be, for which Open MPI needs a
 * gap (wire.h). Messages packed by a device are posted too late to insert one. */
static bool wants_gap(const tempi_message *message, tempi_peer peer)
{
    const int method = message->op.method;
    return TEMPI_ABI == TEMPI_ABI_OPENMPI &&
           (method == TEMPI_METHOD_HOST ||
            (message->operation == TEMPI_OP_RECV && method != TEMPI_METHOD_DEVICE)) &&
           (peer.comm == MPI_COMM_NULL || tempi_posted_own(peer.comm, peer.rank));
}

/* Takes memory for the packed bytes, with room for the gap. */
static bool take_packed(bool must, tempi_peer peer, tempi_inline_buffer *inline_buffer,
                        tempi_message *out)
{
    tempi_op *op = &out->op;
    if (wants_gap(out, peer))
        out->wire = tempi_wire_gapped(op->n);
    const int64_t n = op->n;
    op->n += out->wire == MPI_PACKED ? 0 : 1;
    out->borrowed = inline_buffer && op->n <= TEMPI_INLINE_BYTES;
    if (out->borrowed)
        op->packed = out->operation == TEMPI_OP_RECV ? tempi_inline_received(inline_buffer, op->n)
                                                     : tempi_inline_sent(inline_buffer);
    const bool taken = out->borrowed || tempi_packed_get(op, must);
    op->n = n;
    return taken;
}

/* Plans a message in device memory. A library that is not CUDA-aware cannot carry it, so then
 * tempi does at any cost. */
static bool plan_device(const tempi_memory *memory, tempi_peer peer, tempi_message *out)
{
    tempi_op *op = &out->op;
    const bool aware = tempi_library_cuda_aware();
    op->device = memory->device;
    out->tables = memory->kind == TEMPI_MEMORY_MANAGED ? TEMPI_TABLES_OF_MANAGED
                                                       : TEMPI_TABLES_OF_DEVICE;
    if (!sends_or_receives(out->operation)) {
        op->method = aware && op->layout->dense
                         ? TEMPI_METHOD_LIBRARY
                         : TEMPI_METHOD_STAGED; /* for now: the caller chooses */
        return op->method == TEMPI_METHOD_LIBRARY ? leave(TEMPI_STAT_fallback_cuda_aware) : true;
    }
    op->method = (int32_t)tempi_method_of_message(out, &peer);
    if (op->method == TEMPI_METHOD_LIBRARY)
        return leave(op->layout->dense ? TEMPI_STAT_fallback_cuda_aware : TEMPI_STAT_fallback_rule);
    if (!take_packed(!aware, peer, NULL, out))
        return leave(TEMPI_STAT_fallback_stage);
    tempi_method_note(op);
    return true;
}

/* Plans a message in several memories. No library can read all of them, so tempi carries it. Its
 * packed bytes are in host memory, which all devices reach. */
static bool plan_mixed(tempi_parts *parts, tempi_peer peer, tempi_message *out)
{
    tempi_op *op = &out->op;
    for (int p = 0; p < parts->n; ++p)
        if (parts->part[p].method != TEMPI_METHOD_HOST)
            op->device = parts->part[p].device;
    tempi_method_of_parts(out, parts);
    op->method = TEMPI_METHOD_MIXED;
    op->parts = parts;
    const bool packing = !sends_or_receives(out->operation);
    if (!packing && !take_packed(true, peer, NULL, out)) {
        tempi_message_drop(out);
        return leave(TEMPI_STAT_fallback_stage);
    }
    tempi_stat_add(TEMPI_STAT_mixed, 1);
    if (!packing)
        tempi_method_note(op);
    return true;
}

/* Finds the kind of memory. True: all of it is host memory; false: `*ours` is the decision. */
static bool on_host(const tempi_type *type, const void *buffer, MPI_Count count, tempi_peer peer,
                    tempi_message *out, bool *ours)
{
    tempi_memory memory;
    tempi_memory_ask((const char *)buffer + type->layout->true_lb, &memory);
    *ours = false;
    if (tempi_memory_may_partition(type->layout, count, buffer, &memory)) {
        tempi_parts *parts;
        switch (tempi_memory_partition(type->layout, count, buffer, &memory, &parts)) {
        case TEMPI_PARTITION_MIXED: *ours = plan_mixed(parts, peer, out); return false;
        case TEMPI_PARTITION_UNKNOWN: leave(TEMPI_STAT_fallback_memory); return false;
        case TEMPI_PARTITION_ONE: break;
        }
    }
    /* The host may read managed memory, but kernels of the program may still be writing it. */
    if (memory.kind == TEMPI_MEMORY_DEVICE || memory.kind == TEMPI_MEMORY_MANAGED) {
        *ours = plan_device(&memory, peer, out);
        return false;
    }
    if (!type->layout->dense && !tempi_memory_host_readable(memory.kind)) {
        leave(TEMPI_STAT_fallback_memory);
        return false;
    }
    return true;
}

static bool to_oneself(tempi_peer peer)
{
    return peer.comm == MPI_COMM_SELF ||
           (peer.comm != MPI_COMM_NULL && tempi_posted_own(peer.comm, peer.rank));
}

static int class_of(const void *whom, int64_t bytes)
{
    const tempi_peer *peer = whom;
    return tempi_peer_class(peer->comm, peer->rank, bytes);
}

static bool is_self(const void *whom)
{
    return to_oneself(*(const tempi_peer *)whom);
}

const tempi_query_peer tempi_message_peer = {.class = class_of, .is_self = is_self};

static bool may_repeat(tempi_operation operation)
{
    return sends_or_receives(operation) && !tempi_online_tuning;
}

/* Of a message in host memory to that peer: about word and passed messages nothing is said yet. */
static void ask(tempi_operation operation, const tempi_peer *peer, int64_t bytes, bool posted,
                tempi_message *out, tempi_query *query)
{
    query->operation = operation; /* field by field, as above */
    query->bytes = bytes;
    query->peer = &tempi_message_peer;
    query->whom = peer;
    query->device = NULL;
    query->sample = &out->sample;
    query->streamed = &out->op.streamed;
    query->passed = 0;
    query->repeats = false;
    /* A choice for an unknown peer is that for its usual class, which its other side need not know.
     */
    query->posted = posted && peer->comm != MPI_COMM_NULL && peer->rank >= 0;
}

/* Whether tempi is expected to be faster than the library. */
static bool examine(const tempi_type *type, tempi_operation operation, const tempi_peer *peer,
                    int64_t bytes, bool posted, tempi_message *out)
{
    tempi_query query;
    unsigned word;
    ask(operation, peer, bytes, posted, out, &query);
    query.word = &word;
    return tempi_choose(tempi_type_chooser(type), &query) == TEMPI_METHOD_HOST;
}

/* The same, known from messages like it. */
static bool wins(const tempi_type *type, tempi_operation operation, tempi_peer peer,
                 MPI_Count count, int64_t bytes, bool posted, tempi_message *out)
{
    if (!posted || !may_repeat(operation))
        return examine(type, operation, &peer, bytes, posted, out);
    const uint64_t key = tempi_message_key(peer, count);
    const int method = tempi_choose_again(tempi_type_chooser(type), operation, key);
    out->op.streamed = method == TEMPI_MESSAGE_STREAMED;
    if (method != TEMPI_MESSAGE_USUAL)
        return method != TEMPI_MESSAGE_LIBRARY;
    tempi_query query;
    ask(operation, &peer, bytes, true, out, &query);
    return tempi_choose_noted(tempi_type_chooser(type), &query, key);
}

bool tempi_message_wins(const tempi_type *type, tempi_operation operation, tempi_peer peer,
                        int64_t bytes)
{
    tempi_message unused;
    return !type->layout->dense && examine(type, operation, &peer, bytes, false, &unused);
}

/* Below it, a message that is left costs the library so little that it is left for good: to follow
 * its request takes some 100 ns a start. */
enum { LEFT_OPEN_FIRST = 4 << 10 };

/* Whether trials may change the method of a message that is posted again and again; `ours`: tempi
 * is expected to be faster with it. */
static bool may_change(const tempi_type *type, tempi_operation operation, tempi_peer peer,
                       int64_t bytes, bool ours)
{
    return (ours || bytes >= LEFT_OPEN_FIRST) && peer.comm != MPI_COMM_NULL && peer.rank >= 0 &&
           tempi_choose_is_tried(&type->chooser, operation, bytes) && !to_oneself(peer);
}

/* When the message is posted, and whether tempi must carry it. */
typedef enum plan_for { PLAN_NOW, PLAN_LATER, PLAN_FORCED } plan_for;

static bool plan(const tempi_type *type, const void *buffer, MPI_Count count,
                 tempi_operation operation, tempi_peer peer, plan_for when,
                 tempi_inline_buffer *inline_buffer, tempi_message *out)
{
    int64_t bytes;
    const bool dense = type->layout->dense;
    if (!dense)
        tempi_stat_add(TEMPI_STAT_calls_seen, 1);
    if (tempi_this_thread.disabled)
        return leave(TEMPI_STAT_fallback_disabled);
    if (count <= 0 || type->size == 0 || __builtin_mul_overflow(count, type->size, &bytes) ||
        !tempi_address_plausible(buffer, type->layout))
        return dense ? false : leave(TEMPI_STAT_fallback_argument);
    make(type, buffer, count, bytes, operation, out);
    bool ours;
    if (tempi_memory_mixed && !on_host(type, buffer, count, peer, out, &ours))
        return ours;
    if (dense)
        return when == PLAN_FORCED;
    const bool ours_first = when == PLAN_FORCED ||
                            wins(type, operation, peer, count, bytes, when == PLAN_NOW, out);
    out->open = when == PLAN_LATER && may_change(type, operation, peer, bytes, ours_first);
    if (!ours_first && !out->open)
        return leave(TEMPI_STAT_fallback_rule);
    if (sends_or_receives(operation) && !take_packed(false, peer, inline_buffer, out))
        return leave(TEMPI_STAT_fallback_stage);
    if (tempi_chooser_has_quirk(&type->chooser, operation))
        tempi_stat_add(TEMPI_STAT_quirks, 1);
    return true;
}

bool tempi_message_plan(const tempi_type *type, const void *buffer, MPI_Count count,
                        tempi_operation operation, tempi_peer peer,
                        tempi_inline_buffer *inline_buffer, tempi_message *out)
{
    if (type->layout->dense)
        return false;
    return plan(type, buffer, count, operation, peer, PLAN_NOW, inline_buffer, out);
}

/* A type that may not be committed is left to the library, unless it cannot read the address.
 * Data that the library will read must be ready when it is called. */
static bool take_mixed(const void *buffer, MPI_Count count, MPI_Datatype datatype,
                       tempi_operation operation, tempi_peer peer, plan_for when,
                       tempi_message *out)
{
    const tempi_type *type = tempi_type_any(datatype);
    if (!type && !tempi_library_cuda_aware() && tempi_memory_of(buffer) == TEMPI_MEMORY_DEVICE)
        type = tempi_type_adopt(datatype);
    if (type && plan(type, buffer, count, operation, peer, when, NULL, out))
        return true;
    (void)tempi_cuda_settle(tempi_direction_of(operation));
    return false;
}

bool tempi_message_take_mixed(const void *buffer, MPI_Count count, MPI_Datatype datatype,
                              tempi_operation operation, tempi_peer peer, tempi_message *out)
{
    return take_mixed(buffer, count, datatype, operation, peer, PLAN_NOW, out);
}

bool tempi_message_take_kept(const void *buffer, MPI_Count count, MPI_Datatype datatype,
                             tempi_operation operation, tempi_peer peer, tempi_message *out)
{
    if (tempi_memory_mixed)
        return take_mixed(buffer, count, datatype, operation, peer, PLAN_LATER, out);
    const tempi_type *type = tempi_type_use(datatype, count);
    return type && !type->layout->dense &&
           plan(type, buffer, count, operation, peer, PLAN_LATER, NULL, out);
}

bool tempi_message_force(const void *buffer, MPI_Count count, MPI_Datatype datatype,
                         tempi_operation operation, tempi_message *out)
{
    const tempi_type *type = tempi_type_any(datatype);
    return type && plan(type, buffer, count, operation, tempi_peer_none(), PLAN_FORCED, NULL, out);
}

void tempi_message_drop(tempi_message *message)
{
    if (!message->borrowed)
        tempi_packed_put(&message->op);
    tempi_parts_free(message->op.parts);
    message->op.parts = NULL;
}

/* The quantity that predicts the operation's duration. */
static tempi_quantity quantity_of(tempi_operation operation)
{
    static const tempi_quantity of[] = {TEMPI_QUANTITY_OWN_PACK, TEMPI_QUANTITY_OWN_UNPACK,
                                        TEMPI_QUANTITY_STAGE_PACK, TEMPI_QUANTITY_STAGE_UNPACK};
    return of[operation];
}

static void note(const tempi_message *message, const tempi_op *op, const char *call)
{
    tempi_message_note(message->operation, op);
    if (message->type->typemap)
        tempi_check_op(message->type->typemap, op, call);
}

static int run(const tempi_op *op, const tempi_message *message, const char *call)
{
    const double start = tempi_trace_begin(), begun = tempi_tuning_begin();
    if (tempi_pack_run(op, 1) != TEMPI_OK)
        return MPI_ERR_OTHER;
    if (op->method == TEMPI_METHOD_HOST)
        tempi_tuning_end(begun, quantity_of(message->operation), op->layout, op->n);
    tempi_trace_end(start, op->direction == TEMPI_PACK ? "pack" : "unpack", call, op->n);
    note(message, op, call);
    return MPI_SUCCESS;
}

int tempi_messages_run(const tempi_message *const messages[], int n, const char *call)
{
    enum { FEW = 32 };
    tempi_op few[FEW], *ops = n > FEW ? malloc((size_t)n * sizeof *ops) : few;
    const double start = tempi_trace_begin();
    int64_t bytes = 0;
    if (!ops)
        return MPI_ERR_OTHER;
    for (int i = 0; i < n; bytes += ops[i++].n)
        ops[i] = messages[i]->op;
    const int status = tempi_pack_run(ops, n);
    if (ops != few)
        free(ops);
    if (status != TEMPI_OK)
        return MPI_ERR_OTHER;
    tempi_trace_end(start, messages[0]->op.direction == TEMPI_PACK ? "pack" : "unpack", call,
                    bytes);
    for (int i = 0; i < n; ++i)
        note(messages[i], &messages[i]->op, call);
    return MPI_SUCCESS;
}

int tempi_message_pack(const tempi_message *message, const char *call)
{
    const int rc = run(&message->op, message, call);
    if (rc == MPI_SUCCESS && message->wire != MPI_PACKED)
        tempi_wire_out(&message->op);
    return rc;
}

int tempi_message_unpack(const tempi_message *message, int64_t bytes, const char *call)
{
    if (message->wire == MPI_PACKED && bytes >= message->op.n)
        return run(&message->op, message, call); /* a copy of the operation takes 10 ns */
    tempi_op op = message->op;
    if (message->wire != MPI_PACKED)
        tempi_wire_in(&op, bytes);
    op.n = bytes < op.n ? bytes : op.n;
    return run(&op, message, call);
}

int tempi_message_failed(MPI_Comm comm)
{
    tempi_stat_add(TEMPI_STAT_device_errors, 1);
    tempi_lib.Comm_call_errhandler(comm, MPI_ERR_OTHER);
    return MPI_ERR_OTHER;
}

/* Open MPI reports the length of the message and delivers as much as fits. MPICH reports the
 * delivered bytes; or the length of the message, and then it has delivered nothing. */
int64_t tempi_message_cut(int error, const MPI_Status *status, int64_t n)
{
    int class;
    if (tempi_lib.Error_class(error, &class) != MPI_SUCCESS || class != MPI_ERR_TRUNCATE)
        return 0;
    const int64_t bytes = tempi_status_bytes(status);
    return bytes <= n ? bytes : TEMPI_ABI == TEMPI_ABI_OPENMPI ? n : 0;
}

void tempi_message_unpack_cut(const tempi_message *message, int error, const MPI_Status *status,
                              const char *call)
{
    const int64_t bytes = tempi_message_cut(error, status, message->op.n);
    if (bytes > 0)
        (void)tempi_message_unpack(message, bytes, call);
}

int64_t tempi_status_bytes(const MPI_Status *status)
{
    const int64_t known = tempi_abi_status_bytes(status);
    if (known >= 0)
        return known;
    MPI_Count large = 0;
    int bytes = 0;
    if (tempi_lib.Get_count(status, MPI_BYTE, &bytes) == MPI_SUCCESS && bytes != MPI_UNDEFINED)
        return bytes;
    if (tempi_lib.Get_elements_x &&
        tempi_lib.Get_elements_x(status, MPI_BYTE, &large) == MPI_SUCCESS)
        return large;
    return 0;
}
