/* Persistent sends and receives: the library's own persistent request over a staging buffer that
 * the record keeps until the request is freed. */
#include "base/log.h"
#include "shim/act.h"
#include "shim/check.h"
#include "shim/request.h"

/* The request has just been made over message.op.packed. Without a record it could not be packed
 * at Start: it is undone, and the caller makes the library's own. */
static bool keep(tempi_message *message, bool receives, MPI_Comm comm, MPI_Request *request)
{
    tempi_record *record = tempi_request_record(message, receives);
    if (record) {
        record->role = TEMPI_REQUEST_PERSISTENT;
        record->active = false;
        record->request = tempi_handle(*request);
        record->comm = tempi_handle(comm);
        if (tempi_records_put(record))
            return true;
        message->op = record->op;
        record->op.packed = NULL;
        record->role = TEMPI_REQUEST_ATTACHED;
        tempi_request_finish(record);
    }
    TEMPI_WARN_ONCE("out of memory for a persistent request: it is left to the library");
    tempi_lib.Request_free(request);
    tempi_message_drop(message);
    return false;
}

#define DEFINE_INIT(NAME, BUFFER, PEER, OPERATION, RECEIVES)                                       \
    int tempi_act_##NAME(const struct tempi_mpi *to, BUFFER buf, MPI_Count count,                  \
                         MPI_Datatype datatype, int PEER, int tag, MPI_Comm comm,                  \
                         MPI_Request *request)                                                     \
    {                                                                                              \
        tempi_message message;                                                                     \
        if (PEER != MPI_PROC_NULL &&                                                               \
            tempi_message_take(buf, count, datatype, OPERATION, tempi_other_of(comm, PEER), &message)) { \
            const int rc = tempi_fwd_##NAME(to, message.op.packed, message.op.n, MPI_PACKED, PEER, tag, comm, request); \
            if (rc != MPI_SUCCESS)                                                                 \
                tempi_message_drop(&message);                                                      \
            if (rc != MPI_SUCCESS || keep(&message, RECEIVES, comm, request))                            \
                return rc;                                                                         \
        }                                                                                          \
        return tempi_fwd_##NAME(to, buf, count, datatype, PEER, tag, comm, request);               \
    }

DEFINE_INIT(Send_init, const void *, dest, TEMPI_OP_SEND, false)
DEFINE_INIT(Ssend_init, const void *, dest, TEMPI_OP_SEND, false)
DEFINE_INIT(Rsend_init, const void *, dest, TEMPI_OP_SEND, false)
DEFINE_INIT(Bsend_init, const void *, dest, TEMPI_OP_SEND, false)
DEFINE_INIT(Recv_init, void *, source, TEMPI_OP_RECV, true)

/* Before the library starts it. The record stays in the table: only this thread may use the
 * request now. */
static tempi_record *prepare(MPI_Request request)
{
    tempi_record *record = tempi_records_claim(tempi_handle(request));
    if (!record)
        return NULL;
    record->active = true;
    record->settled = false;
    record->cancelled = false;
    record->error = MPI_SUCCESS;
    if (!record->receives && tempi_pack_run(&record->op, 1) != TEMPI_OK) {
        record->active = false;
        record->error = tempi_message_failed(tempi_comm_of(record->comm));
    } else if (!record->receives) {
        tempi_message_note(TEMPI_OP_SEND, &record->op);
        tempi_check_op(record->typemap, &record->op, "MPI_Start");
    }
    if (!tempi_records_put(record))
        TEMPI_LOG(TEMPI_LOG_ERROR, "out of memory: a persistent request lost its record");
    return record;
}

int tempi_act_Start(const struct tempi_mpi *to, MPI_Request *request)
{
    if (tempi_pending_any())
        tempi_before_blocking();
    if (!tempi_records_any())
        return to->Start(request);
    tempi_record *record = prepare(*request);
    if (record && record->error != MPI_SUCCESS)
        return record->error;
    const int rc = to->Start(request);
    if (rc != MPI_SUCCESS && record)
        record->active = false;
    return rc;
}

int tempi_act_Startall(const struct tempi_mpi *to, int count, MPI_Request requests[])
{
    if (tempi_pending_any())
        tempi_before_blocking();
    for (int i = 0; tempi_records_any() && requests && i < count; ++i) {
        const tempi_record *record = prepare(requests[i]);
        if (record && record->error != MPI_SUCCESS)
            return record->error; /* none is started: the others' packed bytes do no harm */
    }
    return to->Startall(count, requests);
}
