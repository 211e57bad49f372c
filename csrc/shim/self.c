#include "shim/self.h"
#include "base/stats.h"
#include "base/trace.h"
#include "cuda/move.h"
#include "shim/check.h"
#include "shim/message.h"
#include "shim/queue.h"
#include "shim/stream.h"

static int keyval = MPI_KEYVAL_INVALID;
static _Atomic bool known; /* every call was seen */

/* Nothing is under way in a communicator that was just made. (The library's own functions of this kind
 * are symbols on some, and we must have none undefined.) */
static int copy_nothing(MPI_Comm comm, int key, void *state, void *in, void *out, int *flag)
{
    (void)comm, (void)key, (void)state, (void)in, (void)out;
    *flag = 0;
    return MPI_SUCCESS;
}

static int delete_nothing(MPI_Comm comm, int key, void *value, void *state)
{
    (void)comm, (void)key, (void)value, (void)state;
    return MPI_SUCCESS;
}

void tempi_self_start(bool seen)
{
    known = false;
    if (!tempi_memory_mixed || keyval != MPI_KEYVAL_INVALID)
        return;
    known = tempi_lib.Comm_create_keyval(copy_nothing, delete_nothing, &keyval, NULL) == MPI_SUCCESS && seen;
}

void tempi_self_stop(void)
{
    known = false;
    if (keyval != MPI_KEYVAL_INVALID)
        tempi_lib.Comm_free_keyval(&keyval);
    keyval = MPI_KEYVAL_INVALID;
}

static bool is_own(MPI_Comm comm, int peer)
{
    int rank, between = 0;
    return peer >= 0 && tempi_lib.Comm_rank(comm, &rank) == MPI_SUCCESS && rank == peer &&
           tempi_lib.Comm_test_inter(comm, &between) == MPI_SUCCESS && !between;
}

static bool in_doubt(MPI_Comm comm)
{
    void *value;
    int found = 0;
    return tempi_lib.Comm_get_attr(comm, keyval, &value, &found) != MPI_SUCCESS || found;
}

void tempi_self_look(MPI_Comm comm, int peer)
{
    static char mark;
    if (!known || !(peer == MPI_ANY_SOURCE || is_own(comm, peer)) || in_doubt(comm))
        return;
    if (tempi_lib.Comm_set_attr(comm, keyval, &mark) != MPI_SUCCESS)
        known = false;
}

bool tempi_self_matches(MPI_Comm comm, int dest, int sendtag, int source, int recvtag)
{
    return known && dest == source && (recvtag == sendtag || recvtag == MPI_ANY_TAG) &&
           tempi_queue_takes(dest, sendtag, comm) && is_own(comm, dest) && !in_doubt(comm);
}

static bool by_kernel(const tempi_op *op)
{
    return op->method != TEMPI_ON_HOST && op->method != TEMPI_MIXED;
}

static tempi_side side_of(const tempi_op *op)
{
    return (tempi_side){.layout = op->layout, .count = op->count, .mem = (uintptr_t)op->mem};
}

static bool move(MPI_Comm comm, const tempi_message *out, const tempi_message *in, const char *call)
{
    const tempi_side from = side_of(&out->op), to = side_of(&in->op);
    const double start = tempi_trace_begin();
    const uintptr_t before = tempi_stream_enter(comm);
    const int status = tempi_cuda_move(out->op.device, &from, &to, out->op.n);
    tempi_stream_leave(before);
    if (status != TEMPI_OK)
        return false;
    tempi_trace_end(start, "move", call, out->op.n);
    tempi_op came = in->op;
    came.n = out->op.n;
    tempi_message_note(TEMPI_OP_SEND, &out->op);
    tempi_message_note(TEMPI_OP_RECV, &came);
    tempi_stat_add(TEMPI_STAT_self_moves, 1);
    tempi_check_move(in->type->typemap, &came, out->type->typemap, &out->op, call);
    return true;
}

/* Taken as for MPI_Pack and MPI_Unpack: no packed buffer is needed. */
bool tempi_self_move(MPI_Comm comm, const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void *recvbuf,
                     MPI_Count recvcount, MPI_Datatype recvtype, int64_t *bytes, const char *call)
{
    tempi_message out, in;
    bool done = false;
    if (!tempi_message_take(sendbuf, sendcount, sendtype, TEMPI_OP_PACK, tempi_other_none(), &out))
        return false;
    if (tempi_message_take(recvbuf, recvcount, recvtype, TEMPI_OP_UNPACK, tempi_other_none(), &in)) {
        done = by_kernel(&out.op) && by_kernel(&in.op) && out.op.device == in.op.device && out.op.n <= in.op.n &&
               move(comm, &out, &in, call);
        tempi_message_drop(&in);
    }
    *bytes = out.op.n;
    tempi_message_drop(&out);
    return done;
}

bool tempi_self_stays(const void *buffer, MPI_Count count, MPI_Datatype datatype, int64_t *bytes)
{
    tempi_message message;
    if (!tempi_message_take(buffer, count, datatype, TEMPI_OP_PACK, tempi_other_none(), &message))
        return false;
    const bool stays = message.op.method != TEMPI_ON_HOST;
    *bytes = message.op.n;
    if (stays) {
        tempi_message_note(TEMPI_OP_SEND, &message.op);
        tempi_message_note(TEMPI_OP_RECV, &message.op);
        tempi_stat_add(TEMPI_STAT_self_moves, 1);
    }
    tempi_message_drop(&message);
    return stays;
}

void tempi_self_status(MPI_Status *status, int rank, int tag, int64_t bytes)
{
    if (status == MPI_STATUS_IGNORE)
        return;
    tempi_lib.Status_set_cancelled(status, 0);
    tempi_lib.Status_set_elements_x(status, MPI_BYTE, (MPI_Count)bytes);
    status->MPI_SOURCE = rank;
    status->MPI_TAG = tag;
}
