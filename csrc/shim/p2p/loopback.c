#include "shim/p2p/loopback.h"
#include "base/stats.h"
#include "base/trace.h"
#include "cuda/strided_copy.h"
#include "shim/comm/comm_stream.h"
#include "shim/p2p/message.h"
#include "shim/p2p/posted_receives.h"
#include "shim/request/deferred_sends.h"
#include "shim/request/request.h"
#include "shim/type/typemap_check.h"

void tempi_loopback_start(bool seen)
{
    if (tempi_memory_mixed)
        tempi_posted_start(seen);
}

void tempi_loopback_stop(void)
{
    tempi_posted_stop();
}

/* ---- other pending messages ------------------------------------------------------------------ */

static bool is_own_or_any(MPI_Comm comm, int peer)
{
    return tempi_posted_on() && comm != MPI_COMM_NULL &&
           (peer == MPI_ANY_SOURCE || tempi_posted_own(comm, peer));
}

void tempi_loopback_note(MPI_Comm comm, int peer)
{
    tempi_posted *posted = is_own_or_any(comm, peer) ? tempi_posted_of(comm, true) : NULL;
    if (posted)
        tempi_posted_doubt(posted);
}

void tempi_loopback_block(MPI_Comm comm, int source)
{
    tempi_posted *posted = is_own_or_any(comm, source) ? tempi_posted_of(comm, true) : NULL;
    if (posted)
        tempi_posted_untrack(posted);
}

bool tempi_loopback_matches(MPI_Comm comm, int dest, int sendtag, int source, int recvtag)
{
    return tempi_posted_on() && dest == source && (recvtag == sendtag || recvtag == MPI_ANY_TAG) &&
           tempi_deferred_takes(dest, sendtag, comm) && tempi_posted_own(comm, dest) &&
           tempi_posted_clear(tempi_posted_of(comm, false));
}

/* ---- in one call ----------------------------------------------------------------------------- */

static bool by_kernel(const tempi_op *op)
{
    return op->method != TEMPI_METHOD_HOST && op->method != TEMPI_METHOD_MIXED;
}

static bool move(MPI_Comm comm, const tempi_message *out, const tempi_message *in, const char *call)
{
    const tempi_side from = tempi_side_of(&out->op), to = tempi_side_of(&in->op);
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

/* Both messages are taken as for MPI_Pack and MPI_Unpack: no packed buffer is needed. */
bool tempi_loopback_move(MPI_Comm comm, const void *sendbuf, MPI_Count sendcount,
                         MPI_Datatype sendtype, void *recvbuf, MPI_Count recvcount,
                         MPI_Datatype recvtype, int64_t *bytes, const char *call)
{
    tempi_message out, in;
    bool done = false;
    if (!tempi_message_take(sendbuf, sendcount, sendtype, TEMPI_OP_PACK, tempi_peer_none(), &out))
        return false;
    if (tempi_message_take(recvbuf, recvcount, recvtype, TEMPI_OP_UNPACK, tempi_peer_none(), &in)) {
        done = by_kernel(&out.op) && by_kernel(&in.op) && out.op.device == in.op.device &&
               out.op.n <= in.op.n && move(comm, &out, &in, call);
        tempi_message_drop(&in);
    }
    *bytes = out.op.n;
    tempi_message_drop(&out);
    return done;
}

bool tempi_loopback_stays(const void *buffer, MPI_Count count, MPI_Datatype datatype,
                          int64_t *bytes)
{
    tempi_message message;
    if (!tempi_message_take(buffer, count, datatype, TEMPI_OP_PACK, tempi_peer_none(), &message))
        return false;
    const bool stays = message.op.method != TEMPI_METHOD_HOST;
    *bytes = message.op.n;
    if (stays) {
        tempi_message_note(TEMPI_OP_SEND, &message.op);
        tempi_message_note(TEMPI_OP_RECV, &message.op);
        tempi_stat_add(TEMPI_STAT_self_moves, 1);
    }
    tempi_message_drop(&message);
    return stays;
}

void tempi_loopback_status(MPI_Status *status, int rank, int tag, int64_t bytes)
{
    if (status == MPI_STATUS_IGNORE)
        return;
    tempi_lib.Status_set_cancelled(status, 0);
    tempi_lib.Status_set_elements_x(status, MPI_BYTE, (MPI_Count)bytes);
    status->MPI_SOURCE = rank;
    status->MPI_TAG = tag;
}

/* ---- in two calls ---------------------------------------------------------------------------- */

bool tempi_loopback_expects(MPI_Comm comm, int source)
{
    if (source < 0 || !is_own_or_any(comm, source))
        return false;
    tempi_posted *posted = tempi_posted_of(comm, true);
    return posted && tempi_posted_reserve(posted);
}

/* No other thread has the request yet. A receive that is already complete got a message that
 * tempi did not track. */
void tempi_loopback_expected(MPI_Comm comm, int rc, int tag, MPI_Request request)
{
    tempi_record *record = NULL;
    if (rc == MPI_SUCCESS) {
        tempi_lock_acquire(&tempi_records.lock);
        const tempi_record_slot *slot = tempi_records_find(tempi_handle(request));
        if (slot && slot->record->ops == &tempi_message_ops && slot->record->receives)
            record = slot->record;
        tempi_lock_release(&tempi_records.lock);
    }
    tempi_posted_add(tempi_posted_of(comm, false), record, tag, rc == MPI_SUCCESS && !record);
}

/* The arguments of a send. */
typedef struct sending {
    const struct tempi_mpi *next;
    const void *buf;
    MPI_Count count;
    MPI_Datatype datatype;
    tempi_send_mode mode;
    int dest, tag;
    MPI_Comm comm;
    MPI_Request *request;
} sending;

static bool defer(const sending *s, tempi_message *message, const tempi_ticket *ticket,
                  tempi_record *receive)
{
    tempi_record *record = tempi_request_record(message, false);
    if (!record)
        return false;
    record->mpi = s->next;
    record->ticket = *ticket;
    tempi_request_pin(record);
    record->mode = (int)s->mode;
    record->destination = s->dest;
    record->tag = s->tag;
    record->comm = tempi_handle(s->comm);
    record->receive = receive;
    receive->delivered = true;
    if (tempi_deferred_send(record, s->request) == MPI_SUCCESS)
        return true;
    receive->delivered = false;
    tempi_request_unrecord(record, message);
    return false;
}

static bool fits(const tempi_op *out, const tempi_op *in)
{
    return by_kernel(out) && by_kernel(in) && out->device == in->device && out->n <= in->n;
}

/* If it cannot be deferred it is sent packed, and is unpacked over the moved bytes. */
static bool carry(tempi_record *receive, void *context)
{
    const sending *s = context;
    tempi_message message;
    tempi_ticket ticket;
    if (!tempi_message_take(s->buf, s->count, s->datatype, TEMPI_OP_SEND,
                            tempi_peer_of(s->comm, s->dest), &message))
        return false;
    message.op.into = &receive->op;
    message.op.stream = tempi_stream_of(s->comm);
    if (fits(&message.op, &receive->op) && tempi_pack_submit(&message.op, 1, &ticket) == TEMPI_OK) {
        const tempi_op op = message.op;
        if (defer(s, &message, &ticket, receive)) {
            tempi_message_note(TEMPI_OP_SEND, &op);
            tempi_stat_add(TEMPI_STAT_self_moves, 1);
            return true;
        }
        tempi_pack_wait(&ticket);
    }
    tempi_message_drop(&message);
    return false;
}

bool tempi_loopback_carry(const struct tempi_mpi *next, const void *buf, MPI_Count count,
                          MPI_Datatype datatype, int mode, int dest, int tag, MPI_Comm comm,
                          MPI_Request *request)
{
    sending s = {next, buf, count, datatype, (tempi_send_mode)mode, dest, tag, comm, request};
    if (dest < 0 || !is_own_or_any(comm, dest) || !tempi_deferred_takes(dest, tag, comm))
        return false; /* not to oneself, or the library will reject it */
    tempi_posted *posted = tempi_posted_of(comm, tempi_threads_are_shared());
    if (!posted)
        return false;
    if (mode != TEMPI_LOOPBACK_NEVER)
        return tempi_posted_match(posted, tag, carry, &s);
    tempi_posted_doubt(posted);
    return false;
}

static void refused(tempi_record *record)
{
    record->receive->delivered = false;
    tempi_loopback_note(tempi_comm_of(record->comm), record->destination);
}

static void check(const tempi_record *record)
{
    tempi_check_move(record->receive->typemap, record->op.into, record->typemap, &record->op,
                     "a send to oneself");
}

const tempi_record_ops tempi_loopback_ops = {.inner = tempi_proxy_inner,
                                             .start = tempi_record_never_starts,
                                             .check = check,
                                             .refused = refused,
                                             .arrived = tempi_message_arrived,
                                             .cut = tempi_message_was_cut,
                                             .finish = tempi_proxy_finish};
