#include "shim/request/request.h"
#include "base/log.h"
#include "base/stats.h"
#include "base/trace.h"
#include "choose/online_tuning.h"
#include "datatype/layout.h"
#include "memory/known.h"
#include "shim/bounce/bounce.h"
#include "shim/p2p/persistent_choice.h"
#include "shim/p2p/posted_receives.h"
#include "shim/request/deferred_sends.h"
#include "shim/type/typemap_check.h"

tempi_record *tempi_request_record(tempi_message *message, bool receives)
{
    tempi_record *record = tempi_record_new();
    if (!record)
        return NULL;
    record->ops = &tempi_message_ops;
    record->receives = receives;
    record->active = true;
    record->op = message->op;
    record->gapped = message->wire != MPI_PACKED;
    record->typemap = tempi_typemap_retain(message->type->typemap);
    tempi_layout_retain(message->op.layout);
    message->op.packed = NULL;
    message->op.parts = NULL;
    return record;
}

void tempi_request_unrecord(tempi_record *record, tempi_message *message)
{
    message->op = record->op;
    record->op.packed = NULL;
    record->op.parts = NULL;
    tempi_record_release(record);
}

/* Unpacks a completed receive. */
static int unpack_now(const tempi_message *message, bool receives, MPI_Comm comm,
                      const MPI_Status *status)
{
    if (receives && status->MPI_ERROR != MPI_SUCCESS)
        tempi_message_unpack_cut(message, status->MPI_ERROR, status, "MPI_Irecv");
    if (!receives || status->MPI_ERROR != MPI_SUCCESS ||
        tempi_message_unpack(message, tempi_status_bytes(status), "MPI_Irecv") == MPI_SUCCESS)
        return MPI_SUCCESS;
    return tempi_message_failed(comm);
}

/* Out of memory for a record: waits for the operation, which is slow but loses nothing. */
static int finish_now(tempi_message *message, bool receives, MPI_Comm comm, MPI_Request request)
{
    MPI_Status status;
    int done = 0;
    while (!done) {
        status.MPI_ERROR = MPI_SUCCESS;
        if (tempi_lib.Request_get_status(request, &done, &status) != MPI_SUCCESS)
            return MPI_SUCCESS;
    }
    return unpack_now(message, receives, comm, &status);
}

/* False: the caller must unpack it now. */
static bool leave_arrived(tempi_message *message, MPI_Comm comm, MPI_Request *request)
{
    tempi_record *record = message->op.method == TEMPI_METHOD_HOST
                               ? NULL
                               : tempi_request_record(message, true);
    if (!record)
        return false;
    record->comm = tempi_handle(comm);
    tempi_request_pin(record);
    if (tempi_deferred_arrived(record, request) == MPI_SUCCESS)
        return true;
    tempi_request_unrecord(record, message);
    return false;
}

/* Complete requests share handles; only an incomplete one has a handle of its own. */
static bool is_done(MPI_Request request, bool receives, MPI_Status *status)
{
    int done = 0;
    status->MPI_ERROR = MPI_SUCCESS;
    return tempi_lib.Request_get_status(request, &done, receives ? status : MPI_STATUS_IGNORE) ==
               MPI_SUCCESS &&
           done;
}

/* For an operation that was not complete a moment ago. */
static int track(tempi_message *message, bool receives, MPI_Comm comm, MPI_Request *request)
{
    tempi_record *record = tempi_request_record(message, receives);
    if (record) {
        record->request = tempi_handle(*request);
        record->comm = tempi_handle(comm);
        tempi_request_pin(record);
        if (tempi_records_put(record))
            return MPI_SUCCESS;
        tempi_request_unrecord(record, message);
    }
    TEMPI_WARN_ONCE("out of memory: cannot track a request; waiting for the operation instead");
    const int rc = finish_now(message, receives, comm, *request);
    tempi_message_drop(message);
    return rc;
}

int tempi_request_attach(tempi_message *message, bool receives, MPI_Comm comm, MPI_Request *request)
{
    MPI_Status status;
    if (!is_done(*request, receives, &status))
        return track(message, receives, comm, request);
    if (receives && leave_arrived(message, comm, request))
        return MPI_SUCCESS;
    const int rc = unpack_now(message, receives, comm, &status);
    tempi_message_drop(message);
    return rc;
}

static void take_in(const tempi_record *record, int64_t came, tempi_op *out)
{
    *out = record->op;
    if (record->gapped)
        tempi_wire_in(out, came);
    out->n = came < out->n ? came : out->n;
}

bool tempi_message_was_cut(tempi_record *record, int error, const MPI_Status *status, tempi_op *out)
{
    if (record->settled || !record->receives || record->delivered)
        return false;
    const int64_t came = tempi_message_cut(error, status, record->op.n);
    if (came == 0)
        return false;
    record->settled = true;
    take_in(record, came, out);
    return true;
}

int tempi_request_posted(int rc, MPI_Request made, tempi_message *message, bool receives,
                         MPI_Comm comm, MPI_Request *request)
{
    if (rc != MPI_SUCCESS || made == MPI_REQUEST_NULL) {
        tempi_message_drop(message);
        return rc;
    }
    *request = made;
    return tempi_request_attach(message, receives, comm, request);
}

/* The message goes on as a planned one. `done`: its status, with an error; NULL: it is pending. */
static int go_on(const tempi_unplanned *m, void *buffer, char *packed, bool receives, MPI_Comm comm,
                 MPI_Request *request, const MPI_Status *done)
{
    tempi_message message;
    tempi_message_of(m->type, buffer, m->count, receives ? TEMPI_OP_RECV : TEMPI_OP_SEND, packed,
                     &message);
    if (!done)
        return track(&message, receives, comm, request);
    const int rc = unpack_now(&message, receives, comm, done);
    tempi_message_drop(&message);
    return rc;
}

int tempi_unplanned_posted(int rc, MPI_Request made, const tempi_unplanned *m, void *buffer,
                           char *packed, bool receives, MPI_Comm comm, MPI_Request *request)
{
    MPI_Status status;
    if (rc == MPI_SUCCESS && made != MPI_REQUEST_NULL) {
        *request = made;
        const bool done = is_done(made, receives, &status);
        if (!done || (receives && status.MPI_ERROR != MPI_SUCCESS))
            return go_on(m, buffer, packed, receives, comm, request, done ? &status : NULL);
        if (receives)
            tempi_unplanned_unpack(m, buffer, packed, tempi_status_bytes(&status));
    }
    tempi_stage_put(packed);
    return rc;
}

bool tempi_message_arrived(tempi_record *record, const MPI_Status *status, tempi_op *out)
{
    if (record->settled || !record->receives)
        return false;
    record->settled = true;
    int cancelled = 0;
    if (record->cancelled)
        tempi_lib.Test_cancelled(status, &cancelled);
    if (cancelled)
        return false;
    const int64_t came = tempi_status_bytes(status);
    take_in(record, came, out);
    if (record->delivered)
        tempi_message_note(TEMPI_OP_RECV, out);
    return !record->delivered;
}

static void unpacked(const tempi_op *op, tempi_record *record, bool failed)
{
    if (failed) {
        tempi_stat_add(TEMPI_STAT_device_errors, 1);
        record->error = MPI_ERR_OTHER;
        return;
    }
    tempi_message_note(TEMPI_OP_RECV, op);
    if (record->typemap)
        tempi_check_op(record->typemap, op, "a nonblocking receive");
}

/* Retries a failed batch one operation at a time: only the request that fails gets the error. */
void tempi_request_unpack(const tempi_op *ops, tempi_record *const *records, int n)
{
    int64_t bytes = 0;
    const double start = tempi_trace_begin(), begun = tempi_tuning_begin();
    const bool together = tempi_pack_run(ops, n) == TEMPI_OK;
    if (n == 1 && ops->method == TEMPI_METHOD_HOST)
        tempi_tuning_end(begun, TEMPI_QUANTITY_STAGE_UNPACK, ops->layout, ops->n);
    for (int i = 0; i < n; ++i) {
        unpacked(&ops[i], records[i],
                 !together && (n == 1 || tempi_pack_run(&ops[i], 1) != TEMPI_OK));
        bytes += ops[i].n;
    }
    tempi_trace_end(start, "unpack", "completion", bytes);
}

int tempi_request_report(tempi_record *record, int code)
{
    if (record->error == MPI_SUCCESS)
        return MPI_SUCCESS;
    if (!record->error_reported)
        tempi_lib.Comm_call_errhandler(tempi_comm_of(record->comm), code);
    record->error_reported = true;
    return code;
}

void tempi_request_settle(tempi_record *record, int error, const MPI_Status *status)
{
    tempi_op op;
    if (error == MPI_SUCCESS ? record->ops->arrived(record, status, &op)
                             : record->ops->cut(record, error, status, &op))
        tempi_request_unpack(&op, &record, 1);
}

void tempi_request_pin(tempi_record *record)
{
    const tempi_op *op = &record->op;
    if (tempi_memory_mixed && op->method != TEMPI_METHOD_HOST && op->method != TEMPI_METHOD_MIXED)
        record->pin = tempi_memory_pin((const char *)op->mem + op->layout->true_lb);
}

void tempi_record_release(tempi_record *record)
{
    tempi_memory_unpin(record->pin);
    if (record->posted_list)
        tempi_posted_leave(record);
    tempi_typemap_free(record->typemap);
    tempi_bounce_free(record->bounce);
    tempi_persistent_choice_free(record->choice);
    tempi_record_free(record);
}

void tempi_record_rest(tempi_record *record)
{
    record->active = false;
    if (tempi_records_put(record))
        return;
    TEMPI_WARN_ONCE("out of memory: cannot track a persistent request; what it receives from now "
                    "on may be incomplete");
    tempi_record_release(record);
}

/* ---- operations ------------------------------------------------------------------------------ */

bool tempi_record_has_no_inner(const tempi_record *record, MPI_Request *out)
{
    (void)record;
    (void)out;
    return false;
}

bool tempi_record_never_starts(tempi_record *record, tempi_op *out, int *rc)
{
    (void)record;
    (void)out;
    (void)rc;
    return false;
}

bool tempi_record_was_not_cut(tempi_record *record, int error, const MPI_Status *status,
                              tempi_op *out)
{
    (void)record;
    (void)error;
    (void)status;
    (void)out;
    return false;
}

void tempi_record_needs_no_check(const tempi_record *record)
{
    (void)record;
}

void tempi_record_is_refused(tempi_record *record)
{
    (void)record;
}

const tempi_record_ops tempi_message_ops = {.inner = tempi_record_has_no_inner,
                                            .start = tempi_record_never_starts,
                                            .check = tempi_record_needs_no_check,
                                            .refused = tempi_record_is_refused,
                                            .arrived = tempi_message_arrived,
                                            .cut = tempi_message_was_cut,
                                            .finish = tempi_record_release};
