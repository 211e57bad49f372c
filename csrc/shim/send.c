/* Blocking and nonblocking sends. */
#include "base/config.h"
#include "shim/act.h"
#include "shim/request.h"

/* Forwards one blocking send in each mode: packed by us, or as it came. */
#define DEFINE_SEND(NAME)                                                                          \
    int tempi_act_##NAME(const struct tempi_mpi *to, const void *buf, MPI_Count count,             \
                         MPI_Datatype datatype, int dest, int tag, MPI_Comm comm)                  \
    {                                                                                              \
        tempi_message message;                                                                     \
        if (tempi_pending_any())                                                                   \
            tempi_before_blocking();                                                               \
        if (dest == MPI_PROC_NULL || !tempi_message_take(buf, count, datatype, TEMPI_OP_SEND, &message)) \
            return tempi_fwd_##NAME(to, buf, count, datatype, dest, tag, comm);                    \
        tempi_message_pack(&message, "MPI_" #NAME);                                                \
        const int rc = tempi_fwd_##NAME(to, message.op.packed, message.op.n, MPI_PACKED, dest, tag, comm); \
        tempi_message_drop(&message);                                                              \
        return rc;                                                                                 \
    }

DEFINE_SEND(Send)
DEFINE_SEND(Ssend)
DEFINE_SEND(Rsend)
DEFINE_SEND(Bsend)

/* The pack is still running: the send waits in the queue and the program gets a proxy. True if so;
 * false, with the pack finished, if it could not be queued. */
static bool defer(const struct tempi_mpi *to, tempi_message *message, tempi_ticket *ticket,
                  tempi_send_mode mode, int dest, int tag, MPI_Comm comm, MPI_Request *request)
{
    tempi_record *record = tempi_queue_takes(dest, tag, comm) ? tempi_request_record(message, false) : NULL;
    if (record) {
        record->door = to;
        record->ticket = *ticket;
        record->mode = (int)mode;
        record->destination = dest;
        record->tag = tag;
        record->comm = tempi_handle(comm);
        if (tempi_queue_send(record, request) == MPI_SUCCESS)
            return true;
        message->op = record->op;
        record->op.packed = NULL;
        tempi_request_finish(record);
    }
    tempi_pack_wait(ticket);
    tempi_before_blocking();
    return false;
}

/* Starts the pack. True: *request is a proxy already. False: the pack is done, post the send. */
static bool start_pack(const struct tempi_mpi *to, tempi_message *message, tempi_send_mode mode,
                       int dest, int tag, MPI_Comm comm, MPI_Request *request)
{
    tempi_ticket ticket;
    if (tempi_config.test_delay == 0 && !tempi_queue_any()) { /* host memory: nothing runs elsewhere */
        tempi_message_pack(message, "MPI_Isend");
        return false;
    }
    if (tempi_pack_submit(&message->op, 1, &ticket) != TEMPI_OK) {
        tempi_message_pack(message, "MPI_Isend");
        tempi_before_blocking();
        return false;
    }
    /* A finished pack behind a running one waits too: messages must not overtake. */
    tempi_message_note(TEMPI_OP_SEND, &message->op);
    if (!tempi_queue_any() && tempi_pack_test(&ticket))
        return false;
    return defer(to, message, &ticket, mode, dest, tag, comm, request);
}

#define DEFINE_ISEND(NAME, MODE)                                                                   \
    int tempi_act_##NAME(const struct tempi_mpi *to, const void *buf, MPI_Count count,             \
                         MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,                  \
                         MPI_Request *request)                                                     \
    {                                                                                              \
        tempi_message message;                                                                     \
        if (tempi_pending_any())                                                                   \
            tempi_progress();                                                                      \
        if (dest == MPI_PROC_NULL || !tempi_message_take(buf, count, datatype, TEMPI_OP_SEND, &message)) { \
            if (tempi_pending_any())                                                               \
                tempi_before_blocking();                                                           \
            return tempi_fwd_##NAME(to, buf, count, datatype, dest, tag, comm, request);           \
        }                                                                                          \
        if (start_pack(to, &message, MODE, dest, tag, comm, request))                                  \
            return MPI_SUCCESS;                                                                    \
        const int rc = tempi_fwd_##NAME(to, message.op.packed, message.op.n, MPI_PACKED, dest, tag, comm, request); \
        if (rc == MPI_SUCCESS)                                                                     \
            tempi_request_attach(&message, false, *request);                                       \
        else                                                                                       \
            tempi_message_drop(&message);                                                          \
        return rc;                                                                                 \
    }

DEFINE_ISEND(Isend, TEMPI_SEND_STANDARD)
DEFINE_ISEND(Issend, TEMPI_SEND_SYNCHRONOUS)
DEFINE_ISEND(Irsend, TEMPI_SEND_READY)

/* The library copies into the attached buffer here and now, so the pack cannot be put off. */
int tempi_act_Ibsend(const struct tempi_mpi *to, const void *buf, MPI_Count count,
                     MPI_Datatype datatype, int dest, int tag, MPI_Comm comm, MPI_Request *request)
{
    tempi_message message;
    if (tempi_pending_any())
        tempi_before_blocking();
    if (dest == MPI_PROC_NULL || !tempi_message_take(buf, count, datatype, TEMPI_OP_SEND, &message))
        return tempi_fwd_Ibsend(to, buf, count, datatype, dest, tag, comm, request);
    tempi_message_pack(&message, "MPI_Ibsend");
    const int rc = tempi_fwd_Ibsend(to, message.op.packed, message.op.n, MPI_PACKED, dest, tag, comm, request);
    if (rc == MPI_SUCCESS)
        tempi_request_attach(&message, false, *request);
    else
        tempi_message_drop(&message);
    return rc;
}
