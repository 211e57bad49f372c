/* Blocking and nonblocking sends. */
#include "base/config.h"
#include "shim/comm/comm_stream.h"
#include "shim/impl.h"
#include "shim/p2p/loopback.h"
#include "shim/p2p/unplanned.h"
#include "shim/request/request.h"
#include "shim/type/typemap_check.h"

/* One blocking send in each mode: packed by tempi, or passed on. */
#define DEFINE_SEND(NAME, MODE)                                                                  \
    int tempi_impl_##NAME(const struct tempi_mpi *next, const void *buf, MPI_Count count,        \
                          MPI_Datatype datatype, int dest, int tag, MPI_Comm comm)               \
    {                                                                                            \
        tempi_message message;                                                                   \
        tempi_inline_buffer inline_buffer;                                                       \
        MPI_Request moved;                                                                       \
        tempi_message_completed(TEMPI_MESSAGE_ROUNDS_OF_RECEIVES);                               \
        if (tempi_loopback_carries(next, buf, count, datatype, MODE, dest, tag, comm, &moved))   \
            return tempi_impl_Wait(next, &moved, MPI_STATUS_IGNORE);                             \
        if (tempi_pending_any())                                                                 \
            tempi_before_blocking();                                                             \
        tempi_unplanned unplanned;                                                               \
        if (tempi_unplanned_take(buf, count, datatype, TEMPI_OP_SEND, tempi_peer_of(comm, dest), \
                                 &unplanned)) {                                                  \
            char *packed = tempi_inline_sent(&inline_buffer);                                    \
            tempi_unplanned_pack(&unplanned, buf, packed);                                       \
            return tempi_fwd_##NAME(next, packed, unplanned.bytes, MPI_PACKED, dest, tag, comm); \
        }                                                                                        \
        if (dest == MPI_PROC_NULL ||                                                             \
            !tempi_message_take_here(buf, count, datatype, TEMPI_OP_SEND,                        \
                                     tempi_peer_of(comm, dest), &inline_buffer, &message))       \
            return tempi_loopback_saw(                                                           \
                tempi_fwd_##NAME(next, buf, count, datatype, dest, tag, comm), comm, dest);      \
        message.op.stream = tempi_stream_of(comm);                                               \
        int rc = tempi_message_pack(&message, "MPI_" #NAME);                                     \
        if (rc == MPI_SUCCESS)                                                                   \
            rc = tempi_fwd_##NAME(next, message.op.packed, tempi_wire_count(&message),           \
                                  message.wire, dest, tag, comm);                                \
        else                                                                                     \
            rc = tempi_message_failed(comm);                                                     \
        tempi_message_drop(&message);                                                            \
        return tempi_loopback_saw(rc, comm, dest);                                               \
    }

DEFINE_SEND(Send, TEMPI_SEND_STANDARD)
DEFINE_SEND(Ssend, TEMPI_SEND_SYNCHRONOUS)
DEFINE_SEND(Rsend, TEMPI_SEND_READY)
DEFINE_SEND(Bsend, TEMPI_LOOPBACK_NEVER)

/* State of a nonblocking send's pack. */
typedef enum started {
    STARTED_PACKED,   /* packed: post the send */
    STARTED_DEFERRED, /* *request is a proxy already */
    STARTED_FAILED    /* a device failed */
} started;

static started packed_or_failed(int status, const tempi_message *message)
{
    if (status != TEMPI_OK)
        return STARTED_FAILED;
    tempi_check_op(message->type->typemap, &message->op, "a nonblocking send");
    if (message->wire != MPI_PACKED)
        tempi_wire_out(&message->op);
    return STARTED_PACKED;
}

/* The pack is still running: defers the send and gives the program a proxy. If it cannot be
 * deferred, waits for the pack. */
static started defer(const struct tempi_mpi *next, tempi_message *message, tempi_ticket *ticket,
                     tempi_send_mode mode, int dest, int tag, MPI_Comm comm, MPI_Request *request)
{
    tempi_record *record = tempi_deferred_takes(dest, tag, comm)
                               ? tempi_request_record(message, false)
                               : NULL;
    if (record) {
        record->mpi = next;
        record->ticket = *ticket;
        tempi_request_pin(record);
        record->mode = (int)mode;
        record->destination = dest;
        record->tag = tag;
        record->comm = tempi_handle(comm); /* its destination, too */
        if (tempi_deferred_send(record, request) == MPI_SUCCESS)
            return STARTED_DEFERRED;
        tempi_request_unrecord(record, message);
    }
    tempi_pack_wait(ticket);
    tempi_post_all();
    return packed_or_failed(tempi_pack_error(ticket), message);
}

/* Packs without deferring. */
static started pack_now(const tempi_message *message)
{
    return tempi_message_pack(message, "MPI_Isend") == MPI_SUCCESS ? STARTED_PACKED
                                                                   : STARTED_FAILED;
}

static started start_pack(const struct tempi_mpi *next, tempi_message *message,
                          tempi_send_mode mode, int dest, int tag, MPI_Comm comm,
                          MPI_Request *request)
{
    tempi_ticket ticket;
    const bool runs_elsewhere = tempi_config.test_delay > 0 ||
                                message->op.method != TEMPI_METHOD_HOST;
    if (!runs_elsewhere && !tempi_deferred_any())
        return pack_now(message);
    if (tempi_pack_submit(&message->op, 1, &ticket) != TEMPI_OK) {
        const started now = pack_now(message);
        tempi_post_all();
        return now;
    }
    /* A finished pack after a running one must wait too: messages must not overtake. */
    tempi_message_note(TEMPI_OP_SEND, &message->op);
    if (!tempi_deferred_any() && tempi_pack_test(&ticket))
        return packed_or_failed(tempi_pack_error(&ticket), message);
    return defer(next, message, &ticket, mode, dest, tag, comm, request);
}

#define DEFINE_ISEND(NAME, MODE)                                                                   \
    int tempi_impl_##NAME(const struct tempi_mpi *next, const void *buf, MPI_Count count,          \
                          MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,                 \
                          MPI_Request *request)                                                    \
    {                                                                                              \
        tempi_message message;                                                                     \
        if (tempi_pending_any())                                                                   \
            tempi_progress_gathering();                                                            \
        if (tempi_loopback_carries(next, buf, count, datatype, MODE, dest, tag, comm, request))    \
            return MPI_SUCCESS;                                                                    \
        tempi_unplanned unplanned; /* before deferred sends none may be posted */                  \
        char *packed = request && !tempi_pending_any()                                             \
                           ? tempi_unplanned_stage(buf, count, datatype, TEMPI_OP_SEND,            \
                                                   tempi_peer_of(comm, dest), &unplanned)          \
                           : NULL;                                                                 \
        MPI_Request made = MPI_REQUEST_NULL;                                                       \
        if (packed) {                                                                              \
            tempi_unplanned_pack(&unplanned, buf, packed);                                         \
            const int posted = tempi_fwd_##NAME(next, packed, unplanned.bytes, MPI_PACKED, dest,   \
                                                tag, comm, &made);                                 \
            return tempi_unplanned_posted(posted, made, &unplanned, (void *)(uintptr_t)buf,        \
                                          packed, false, comm, request);                           \
        }                                                                                          \
        if (!request || dest == MPI_PROC_NULL ||                                                   \
            !tempi_message_take(buf, count, datatype, TEMPI_OP_SEND, tempi_peer_of(comm, dest),    \
                                &message)) {                                                       \
            if (tempi_pending_any())                                                               \
                tempi_post_all();                                                                  \
            return tempi_loopback_saw(tempi_fwd_##NAME(next, buf, count, datatype, dest, tag,      \
                                                       comm, request),                             \
                                      comm, dest);                                                 \
        }                                                                                          \
        message.op.stream = tempi_stream_of(comm);                                                 \
        const started how = start_pack(next, &message, MODE, dest, tag, comm, request);            \
        if (how == STARTED_DEFERRED)                                                               \
            return tempi_loopback_saw(MPI_SUCCESS, comm, dest);                                    \
        const int rc = how == STARTED_FAILED                                                       \
                           ? tempi_message_failed(comm)                                            \
                           : tempi_fwd_##NAME(next, message.op.packed, tempi_wire_count(&message), \
                                              message.wire, dest, tag, comm, &made);               \
        return tempi_request_posted(tempi_loopback_saw(rc, comm, dest), made, &message, false,     \
                                    comm, request);                                                \
    }

DEFINE_ISEND(Isend, TEMPI_SEND_STANDARD)
DEFINE_ISEND(Issend, TEMPI_SEND_SYNCHRONOUS)
DEFINE_ISEND(Irsend, TEMPI_SEND_READY)

/* The library copies into the attached buffer during the call, so the pack cannot be deferred. */
int tempi_impl_Ibsend(const struct tempi_mpi *next, const void *buf, MPI_Count count,
                      MPI_Datatype datatype, int dest, int tag, MPI_Comm comm, MPI_Request *request)
{
    tempi_message message;
    (void)tempi_loopback_carries(next, buf, count, datatype, TEMPI_LOOPBACK_NEVER, dest, tag, comm,
                                 request);
    if (tempi_pending_any())
        tempi_post_all();
    if (!request || dest == MPI_PROC_NULL ||
        !tempi_message_take(buf, count, datatype, TEMPI_OP_SEND, tempi_peer_of(comm, dest),
                            &message))
        return tempi_loopback_saw(
            tempi_fwd_Ibsend(next, buf, count, datatype, dest, tag, comm, request), comm, dest);
    message.op.stream = tempi_stream_of(comm);
    MPI_Request made = MPI_REQUEST_NULL;
    int rc = tempi_message_pack(&message, "MPI_Ibsend");
    if (rc == MPI_SUCCESS)
        rc = tempi_fwd_Ibsend(next, message.op.packed, tempi_wire_count(&message), message.wire,
                              dest, tag, comm, &made);
    else
        rc = tempi_message_failed(comm);
    return tempi_request_posted(tempi_loopback_saw(rc, comm, dest), made, &message, false, comm,
                                request);
}
