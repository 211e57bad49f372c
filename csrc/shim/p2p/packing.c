/* MPI_Pack and MPI_Unpack. If the library's packed form is the type map's bytes (checked at
 * start), both forms are interchangeable. */
#include "shim/p2p/packing.h"
#include "base/config.h"
#include "base/stats.h"
#include "base/thread.h"
#include "base/trace.h"
#include "choose/autotune.h"
#include "choose/online_tuning.h"
#include "cuda/device.h"
#include "memory/copy.h"
#include "pack/parts.h"
#include "shim/comm/comm_stream.h"
#include "shim/comm/cuda_aware.h"
#include "shim/impl.h"
#include "shim/p2p/device_method.h"
#include "shim/p2p/message.h"
#include "transfer/packed_buffer.h"
#include "transfer/staging.h"

bool tempi_packing_falls_back(MPI_Datatype datatype, MPI_Count count, tempi_operation operation)
{
    const tempi_type *type = tempi_type_cached(datatype);
    int64_t bytes;
    if (!type || tempi_memory_mixed || tempi_online_tuning || count <= 0 ||
        __builtin_mul_overflow(count, type->size, &bytes))
        return false;
    const bool dense = type->layout->dense;
    const tempi_choices *choices = &type->chooser.choices[operation][0];
    if (dense ? bytes == 0
              : !tempi_autotune_is_settled(choices, bytes) || tempi_autotune_choice(choices, bytes))
        return false;
    __atomic_store_n(&((tempi_type *)(uintptr_t)type)->left[operation], count, __ATOMIC_RELAXED);
    if (dense)
        return true;
    tempi_thread_cache *mine = tempi_stats_mine();
    tempi_stat_add_to(mine, TEMPI_STAT_calls_seen, 1);
    tempi_stat_add_to(mine, TEMPI_STAT_fallback_rule, 1);
    return true;
}

/* Whether n packed bytes fit into the buffer after the position; all else is left to the library.
 */
static bool fits(int64_t n, const void *packed, MPI_Count size, const MPI_Count *position,
                 MPI_Comm comm)
{
    return packed && position && comm != MPI_COMM_NULL && *position >= 0 && n <= size - *position;
}

/* A call that needs no more than a choice and a copy: memory and settings are the plainest. */
typedef struct plain {
    const tempi_type *type;
    MPI_Count count;
    int64_t bytes;
    tempi_operation operation;
    bool ours;
} plain;

/* False: it is another call. The sample is apart, so that all else can be in registers. */
static inline bool plain_open(plain *p, tempi_sample *sample, MPI_Datatype datatype,
                              MPI_Count count, tempi_operation operation, const void *buffer,
                              const void *packed, MPI_Count size, const MPI_Count *position,
                              MPI_Comm comm)
{
    p->type = tempi_type_cached(datatype);
    p->count = count;
    p->operation = operation;
    if (!p->type || p->type->layout->dense || p->type->typemap || tempi_memory_mixed ||
        tempi_online_tuning || tempi_trace_on || tempi_config.no_pack ||
        tempi_this_thread.disabled || count <= 0 ||
        __builtin_mul_overflow(count, p->type->size, &p->bytes) || p->bytes == 0 ||
        !tempi_address_plausible(buffer, p->type->layout) ||
        !fits(p->bytes, packed, size, position, comm))
        return false;
    sample->trial = NULL;
    p->ours = tempi_choose_packing(tempi_type_chooser(p->type), operation, p->bytes, sample);
    return true;
}

/* `packed`: at the position. */
static inline int plain_carry(const plain *p, void *buffer, char *packed, MPI_Count *position)
{
    if (p->operation == TEMPI_OP_PACK)
        tempi_pack(p->type->layout, p->count, buffer, 0, p->bytes, packed);
    else
        tempi_unpack(p->type->layout, p->count, packed, 0, p->bytes, buffer);
    *position += p->bytes;
    return MPI_SUCCESS;
}

static inline int plain_close(const plain *p, tempi_sample *sample, int rc)
{
    tempi_autotune_end(sample, rc == MPI_SUCCESS);
    const bool packs = p->operation == TEMPI_OP_PACK;
    tempi_thread_cache *mine = tempi_stats_mine();
    tempi_stat_add_to(mine, TEMPI_STAT_calls_seen, 1);
    if (p->ours) {
        tempi_stat_add_to(mine, packs ? TEMPI_STAT_packs : TEMPI_STAT_unpacks, 1);
        tempi_stat_add_to(mine, packs ? TEMPI_STAT_packed_bytes : TEMPI_STAT_unpacked_bytes,
                          p->bytes);
        tempi_stat_add_to(mine, TEMPI_STAT_runs, p->type->layout->runs * p->count);
        if (tempi_chooser_has_quirk(&p->type->chooser, p->operation))
            tempi_stat_add_to(mine, TEMPI_STAT_quirks, 1);
    } else
        tempi_stat_add_to(mine, TEMPI_STAT_fallback_rule, 1);
    return rc;
}

/* Sets the method of all device parts. */
static void set_method(tempi_op *op, int method)
{
    if (op->method == TEMPI_METHOD_MIXED)
        tempi_parts_set_method(op->parts, method);
    else if (op->method != TEMPI_METHOD_HOST)
        op->method = method;
}

/* TEMPI_PACKED_* for the packed side, as the message's device reaches it; memory of another
 * device is reached through pinned memory. */
static int packed_of(const tempi_message *message, const tempi_memory *where)
{
    if (where->kind == TEMPI_MEMORY_PINNED)
        return TEMPI_PACKED_PINNED;
    if (where->kind != TEMPI_MEMORY_DEVICE)
        return TEMPI_PACKED_PAGEABLE;
    return where->device == message->op.device && message->op.method != TEMPI_METHOD_MIXED
               ? TEMPI_PACKED_DEVICE
               : TEMPI_PACKED_PINNED;
}

/* Chooses the method for device memory; false: the library is predicted to be faster. */
static bool choose(tempi_message *message, const tempi_memory *where)
{
    tempi_op *op = &message->op;
    if (op->method == TEMPI_METHOD_HOST)
        return true;
    const int packed = packed_of(message, where);
    const bool through_host = where->kind == TEMPI_MEMORY_DEVICE && packed != TEMPI_PACKED_DEVICE;
    if (op->method != TEMPI_METHOD_MIXED)
        op->method = (int32_t)tempi_method_of_packing(message, packed, !through_host);
    else if (packed == TEMPI_PACKED_PAGEABLE) /* only a copy reaches pageable memory */
        tempi_parts_set_method(op->parts, TEMPI_METHOD_STAGED);
    tempi_method_note(op);
    if (op->method != TEMPI_METHOD_LIBRARY)
        return true;
    tempi_stat_add(TEMPI_STAT_fallback_rule, 1);
    /* The library reads or writes data of the program's stream. */
    (void)tempi_cuda_settle(op->direction);
    return false;
}

/* The packed side is on a device and the other side is not on it: the bytes go through the host. */
static int through_host(const tempi_message *message, void *packed, const char *call)
{
    tempi_message via = *message;
    const bool packs = via.op.direction == TEMPI_PACK;
    if (!tempi_packed_get(&via.op, true))
        return MPI_ERR_NO_MEM;
    int rc = MPI_SUCCESS;
    if (!packs && tempi_memory_copy(via.op.packed, packed, via.op.n) != TEMPI_OK)
        rc = MPI_ERR_OTHER;
    if (rc == MPI_SUCCESS)
        rc = packs ? tempi_message_pack(&via, call) : tempi_message_unpack(&via, via.op.n, call);
    if (rc == MPI_SUCCESS && packs &&
        tempi_memory_copy(packed, via.op.packed, via.op.n) != TEMPI_OK)
        rc = MPI_ERR_OTHER;
    tempi_packed_put(&via.op);
    return rc;
}

/* Packs or unpacks between the message's memory and `packed`, in any kinds of memory. */
static int carry(tempi_message *message, void *packed, const tempi_memory *where, const char *call)
{
    tempi_op *op = &message->op;
    const bool device = where->kind == TEMPI_MEMORY_DEVICE;
    if (device && (op->method == TEMPI_METHOD_HOST || op->method == TEMPI_METHOD_MIXED ||
                   op->device != where->device))
        return through_host(message, packed, call);
    op->packed = packed;
    return op->direction == TEMPI_PACK ? tempi_message_pack(message, call)
                                       : tempi_message_unpack(message, op->n, call);
}

/* Who does the call. */
typedef enum verdict {
    THEIRS,
    OURS,
    INVALID /* the library must reject it, without access to device memory */
} verdict;

/* *where: the memory of the packed side. If that is device memory, tempi does the call unless
 * the library is CUDA-aware. */
static verdict take(const void *buffer, MPI_Count count, MPI_Datatype datatype,
                    tempi_operation operation, const void *packed, MPI_Count size,
                    const MPI_Count *position, MPI_Comm comm, tempi_message *message,
                    tempi_memory *where)
{
    *where = (tempi_memory){.kind = TEMPI_MEMORY_HOST};
    if (tempi_config.no_pack)
        return THEIRS;
    if (tempi_memory_mixed && packed && position)
        tempi_memory_describe(packed, where);
    const bool forced = where->kind == TEMPI_MEMORY_DEVICE && !tempi_library_cuda_aware();
    const bool ours = forced ? tempi_message_force(buffer, count, datatype, operation, message)
                             : tempi_message_take(buffer, count, datatype, operation,
                                                  tempi_peer_none(), message);
    if (!ours || fits(message->op.n, packed, size, position, comm))
        return ours && choose(message, where) ? OURS : THEIRS;
    return message->op.method == TEMPI_METHOD_HOST && !forced ? THEIRS : INVALID;
}

/* The packed side of an invalid call, in memory that the library can read. */
typedef struct stand {
    char *mem;
    void *block; /* NULL: it is the program's own */
} stand;

static bool stand_take(stand *s, const void *packed, MPI_Count size, const tempi_memory *where)
{
    *s = (stand){.mem = (char *)(uintptr_t)packed};
    if (where->kind != TEMPI_MEMORY_DEVICE || size <= 0)
        return true;
    s->mem = s->block = tempi_stage_get_beyond(size);
    return s->block != NULL;
}

/* Passes the invalid call with the same bytes in host memory to the library, which raises the
 * error. */
static int reject_pack(const struct tempi_mpi *next, tempi_message *message, void *outbuf,
                       MPI_Count outsize, MPI_Count *position, MPI_Comm comm,
                       const tempi_memory *where)
{
    stand s = {NULL, NULL};
    set_method(&message->op, TEMPI_METHOD_STAGED);
    int rc;
    const MPI_Count before = *position;
    if (tempi_packed_get(&message->op, true) && stand_take(&s, outbuf, outsize, where) &&
        tempi_pack_run(&message->op, 1) == TEMPI_OK)
        rc = tempi_fwd_Pack(next, message->op.packed, message->op.n, MPI_BYTE, s.mem, outsize,
                            position, comm);
    else
        rc = tempi_message_failed(comm);
    if (s.block && rc == MPI_SUCCESS && *position > before &&
        tempi_memory_copy((char *)outbuf + before, s.mem + before, *position - before) != TEMPI_OK)
        rc = tempi_message_failed(comm);
    tempi_stage_put(s.block);
    tempi_message_drop(message);
    return rc;
}

static int reject_unpack(const struct tempi_mpi *next, tempi_message *message, const void *inbuf,
                         MPI_Count insize, MPI_Count *position, MPI_Comm comm,
                         const tempi_memory *where)
{
    stand s = {NULL, NULL};
    set_method(&message->op, TEMPI_METHOD_STAGED);
    int rc;
    if (tempi_packed_get(&message->op, true) && stand_take(&s, inbuf, insize, where) &&
        (!s.block || tempi_memory_copy(s.mem, inbuf, insize) == TEMPI_OK))
        rc = tempi_fwd_Unpack(next, s.mem, insize, position, message->op.packed, message->op.n,
                              MPI_BYTE, comm);
    else
        rc = tempi_message_failed(comm);
    tempi_stage_put(s.block);
    tempi_message_drop(message);
    return rc;
}

/* The duration of the library's own call corrects its table, if both sides are pageable host
 * memory. */
static int library_took(double begun, int rc, tempi_operation operation, const void *buffer,
                        MPI_Count count, MPI_Datatype datatype, const tempi_memory *packed)
{
    int64_t bytes;
    if (!tempi_online_tuning || rc != MPI_SUCCESS || count <= 0 ||
        packed->kind != TEMPI_MEMORY_HOST ||
        (tempi_memory_mixed && tempi_memory_of(buffer) != TEMPI_MEMORY_HOST))
        return rc;
    const tempi_type *type = tempi_type_find(datatype);
    if (type && type->chooser.modelled & TEMPI_MODEL_BIT(operation, 0) &&
        !__builtin_mul_overflow(count, type->size, &bytes))
        tempi_tuning_end(begun,
                         operation == TEMPI_OP_PACK ? TEMPI_QUANTITY_LIBRARY_PACK
                                                    : TEMPI_QUANTITY_LIBRARY_UNPACK,
                         type->layout, bytes);
    return rc;
}

int tempi_impl_Pack(const struct tempi_mpi *next, const void *inbuf, MPI_Count incount,
                    MPI_Datatype datatype, void *outbuf, MPI_Count outsize, MPI_Count *position,
                    MPI_Comm comm)
{
    tempi_message message;
    tempi_memory where;
    plain p;
    if (plain_open(&p, &message.sample, datatype, incount, TEMPI_OP_PACK, inbuf, outbuf, outsize,
                   position, comm))
        return plain_close(
            &p, &message.sample,
            p.ours
                ? plain_carry(&p, (void *)(uintptr_t)inbuf, (char *)outbuf + *position, position)
                : tempi_fwd_Pack(next, inbuf, incount, datatype, outbuf, outsize, position, comm));
    message.sample.trial = NULL;
    switch (take(inbuf, incount, datatype, TEMPI_OP_PACK, outbuf, outsize, position, comm, &message,
                 &where)) {
    case THEIRS: {
        const double begun = tempi_tuning_begin();
        const int rc = tempi_fwd_Pack(next, inbuf, incount, datatype, outbuf, outsize, position,
                                      comm);
        tempi_autotune_end(&message.sample, rc == MPI_SUCCESS);
        return library_took(begun, rc, TEMPI_OP_PACK, inbuf, incount, datatype, &where);
    }
    case INVALID:
        tempi_autotune_end(&message.sample, false);
        return reject_pack(next, &message, outbuf, outsize, position, comm, &where);
    case OURS: break;
    }
    const uintptr_t before = tempi_stream_enter(comm);
    const int rc = carry(&message, (char *)outbuf + *position, &where, "MPI_Pack");
    tempi_autotune_end(&message.sample, rc == MPI_SUCCESS);
    tempi_stream_leave(before);
    tempi_parts_free(message.op.parts);
    if (rc != MPI_SUCCESS)
        return tempi_message_failed(comm);
    *position += message.op.n;
    return MPI_SUCCESS;
}

/* MPICH 4.0 divides by the size of the type even if it is 0. (Such a type is decoded by now.) */
static bool nothing_to_unpack(MPI_Count insize, const MPI_Count *position, MPI_Count outcount,
                              MPI_Datatype datatype, MPI_Comm comm)
{
    const tempi_type *type = tempi_config.no_pack || tempi_this_thread.disabled
                                 ? NULL
                                 : tempi_type_decoded(datatype);
    return type && type->size == 0 && outcount >= 0 && position && *position >= 0 &&
           *position <= insize && comm != MPI_COMM_NULL;
}

int tempi_impl_Unpack(const struct tempi_mpi *next, const void *inbuf, MPI_Count insize,
                      MPI_Count *position, void *outbuf, MPI_Count outcount, MPI_Datatype datatype,
                      MPI_Comm comm)
{
    tempi_message message;
    tempi_memory where;
    plain p;
    if (plain_open(&p, &message.sample, datatype, outcount, TEMPI_OP_UNPACK, outbuf, inbuf, insize,
                   position, comm))
        return plain_close(&p, &message.sample,
                           p.ours ? plain_carry(&p, outbuf, (char *)(uintptr_t)inbuf + *position,
                                                position)
                                  : tempi_fwd_Unpack(next, inbuf, insize, position, outbuf,
                                                     outcount, datatype, comm));
    message.sample.trial = NULL;
    switch (take(outbuf, outcount, datatype, TEMPI_OP_UNPACK, inbuf, insize, position, comm,
                 &message, &where)) {
    case THEIRS: {
        if (nothing_to_unpack(insize, position, outcount, datatype, comm))
            return MPI_SUCCESS;
        const double begun = tempi_tuning_begin();
        const int rc = tempi_fwd_Unpack(next, inbuf, insize, position, outbuf, outcount, datatype,
                                        comm);
        tempi_autotune_end(&message.sample, rc == MPI_SUCCESS);
        return library_took(begun, rc, TEMPI_OP_UNPACK, outbuf, outcount, datatype, &where);
    }
    case INVALID:
        tempi_autotune_end(&message.sample, false);
        return reject_unpack(next, &message, inbuf, insize, position, comm, &where);
    case OURS: break;
    }
    const uintptr_t before = tempi_stream_enter(comm);
    const int rc = carry(&message, (char *)(uintptr_t)inbuf + *position, &where, "MPI_Unpack");
    tempi_autotune_end(&message.sample, rc == MPI_SUCCESS);
    tempi_stream_leave(before);
    tempi_parts_free(message.op.parts);
    if (rc != MPI_SUCCESS)
        return tempi_message_failed(comm);
    *position += message.op.n;
    return MPI_SUCCESS;
}
