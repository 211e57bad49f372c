#include "shim/message.h"
#include "base/log.h"
#include "base/stats.h"
#include "base/thread.h"
#include "base/trace.h"
#include "memory/kind.h"
#include "shim/check.h"
#include "transfer/stage.h"

static bool leave(int reason)
{
    tempi_stat_add(reason, 1);
    return false;
}

void tempi_message_note(tempi_operation operation, const tempi_op *op)
{
    static const int calls[] = {TEMPI_STAT_packs, TEMPI_STAT_unpacks, TEMPI_STAT_sends,
                                TEMPI_STAT_recvs};
    static const int sizes[] = {TEMPI_STAT_packed_bytes, TEMPI_STAT_unpacked_bytes,
                                TEMPI_STAT_sent_bytes, TEMPI_STAT_recv_bytes};
    tempi_stat_add(calls[operation], 1);
    tempi_stat_add(sizes[operation], op->n);
    tempi_stat_add(TEMPI_STAT_runs, op->layout->runs * op->count);
}

/* No object lies in the first page: such an address is NULL, passed by mistake, for the library to
 * report. (MPI_BOTTOM is NULL too, but then the type's own offsets are addresses.) */
static bool plausible(const void *buffer, const tempi_layout *layout)
{
    return (uintptr_t)buffer + (uintptr_t)layout->true_lb >= 4096;
}

bool tempi_message_plan(const tempi_type *type, const void *buffer, MPI_Count count,
                        tempi_operation operation, tempi_message *out)
{
    int64_t bytes;
    if (type->layout->dense)
        return false;
    tempi_stat_add(TEMPI_STAT_calls_seen, 1);
    if (tempi_this_thread.disabled)
        return leave(TEMPI_STAT_left_disabled);
    if (count <= 0 || type->size == 0 || __builtin_mul_overflow(count, type->size, &bytes) ||
        !plausible(buffer, type->layout))
        return leave(TEMPI_STAT_left_argument);
    if (!tempi_window_has(type->windows[operation], bytes))
        return leave(TEMPI_STAT_left_rule);
    if (tempi_memory_of((const char *)buffer + type->layout->true_lb) != TEMPI_MEMORY_HOST)
        return leave(TEMPI_STAT_left_memory);
    void *stage = NULL;
    if (operation == TEMPI_OP_SEND || operation == TEMPI_OP_RECV) {
        stage = tempi_stage_get(bytes);
        if (!stage)
            return leave(TEMPI_STAT_left_stage);
    }
    if (type->known_wrong)
        tempi_stat_add(TEMPI_STAT_known_wrong, 1);
    *out = (tempi_message){
        .type = type,
        .operation = operation,
        .op = {.layout = type->layout, .count = count, .mem = (void *)(uintptr_t)buffer,
               .packed = stage, .first = 0, .n = bytes,
               .direction = operation == TEMPI_OP_SEND || operation == TEMPI_OP_PACK ? TEMPI_PACK
                                                                                      : TEMPI_UNPACK}};
    return true;
}

void tempi_message_drop(tempi_message *message)
{
    tempi_stage_put(message->op.packed);
    message->op.packed = NULL;
}

static void run(const tempi_op *op, const tempi_message *message, const char *call)
{
    const double start = tempi_trace_begin();
    tempi_pack_run(op, 1);
    tempi_trace_end(start, op->direction == TEMPI_PACK ? "pack" : "unpack", call, op->n);
    tempi_message_note(message->operation, op);
    if (message->type->typemap)
        tempi_check_op(message->type->typemap, op, call);
}

void tempi_message_pack(const tempi_message *message, const char *call)
{
    run(&message->op, message, call);
}

void tempi_message_unpack(const tempi_message *message, int64_t bytes, const char *call)
{
    tempi_op op = message->op;
    op.n = bytes < op.n ? bytes : op.n;
    run(&op, message, call);
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
    if (tempi_lib.Get_elements_x && tempi_lib.Get_elements_x(status, MPI_BYTE, &large) == MPI_SUCCESS)
        return large;
    return 0;
}
