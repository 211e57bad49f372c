/* Persistent sends and receives: the library's own persistent request over a staging buffer that
 * the record owns until the request is freed. Where trials may change the method there is another
 * one, over the program's buffer, and each start takes one of the two (persistent_choice.h). */
#include "base/log.h"
#include "shim/bounce/bounce.h"
#include "shim/comm/comm_stream.h"
#include "shim/comm/peer_class.h"
#include "shim/impl.h"
#include "shim/p2p/loopback.h"
#include "shim/p2p/persistent_choice.h"
#include "shim/request/request.h"
#include "shim/type/typemap_check.h"

#include <stdlib.h>
#include <string.h>

static const tempi_record_ops open_ops;

/* Gives the message to a record of the program's request. False: out of memory. */
static bool put_record(tempi_message *message, MPI_Comm comm, MPI_Request request,
                       tempi_persistent_choice *choice)
{
    tempi_record *record = tempi_request_record(message, message->operation == TEMPI_OP_RECV);
    if (!record)
        return false;
    record->ops = choice ? &open_ops : &tempi_message_persistent_ops;
    record->active = false;
    record->request = tempi_handle(request);
    record->comm = tempi_handle(comm);
    record->choice = choice;
    if (tempi_records_put(record))
        return true;
    record->choice = NULL;
    tempi_request_unrecord(record, message);
    return false;
}

/* The request was just made over message.op.packed. Without a record MPI_Start could not pack:
 * the request is freed, and the library's own is left. */
static bool track(tempi_message *message, MPI_Comm comm, MPI_Request *packed)
{
    if (put_record(message, comm, *packed, NULL))
        return true;
    TEMPI_WARN_ONCE("out of memory: cannot track a persistent request; it is left to the library");
    tempi_lib.Request_free(packed);
    tempi_message_drop(message);
    return false;
}

/* The same where the program has the library's own request. */
static void track_both(tempi_message *message, tempi_peer peer, MPI_Request packed,
                       MPI_Request request)
{
    tempi_persistent_choice *choice = tempi_persistent_choice_make(
        &message->type->chooser, tempi_peer_class(peer.comm, peer.rank, message->op.n),
        message->operation, packed);
    if (choice && put_record(message, peer.comm, request, choice))
        return;
    TEMPI_WARN_ONCE("out of memory: cannot track a persistent request; it is left to the library");
    if (choice)
        tempi_persistent_choice_free(choice);
    else
        tempi_lib.Request_free(&packed);
    tempi_message_drop(message);
}

/* A persistent request is used often, so its type is worth decoding now. */
static bool take(const void *buf, MPI_Count count, MPI_Datatype datatype, tempi_operation operation,
                 tempi_peer peer, tempi_message *message)
{
    (void)tempi_type_find(datatype);
    return tempi_message_take_kept(buf, count, datatype, operation, peer, message);
}

/* As in tempi_request_posted: there is a request only if the handle changed. */
#define DEFINE_INIT(NAME, BUFFER, PEER, OPERATION)                                             \
    int tempi_impl_##NAME(const struct tempi_mpi *next, BUFFER buf, MPI_Count count,           \
                          MPI_Datatype datatype, int PEER, int tag, MPI_Comm comm,             \
                          MPI_Request *request)                                                \
    {                                                                                          \
        tempi_message message;                                                                 \
        const tempi_peer peer = tempi_peer_of(comm, PEER);                                     \
        if (!request || PEER == MPI_PROC_NULL ||                                               \
            !take(buf, count, datatype, OPERATION, peer, &message))                            \
            return tempi_loopback_saw(tempi_fwd_##NAME(next, buf, count, datatype, PEER, tag,  \
                                                       comm, request),                         \
                                      comm, PEER);                                             \
        MPI_Request own = MPI_REQUEST_NULL, packed = MPI_REQUEST_NULL;                         \
        int rc = MPI_SUCCESS;                                                                  \
        if (message.open)                                                                      \
            rc = tempi_fwd_##NAME(next, buf, count, datatype, PEER, tag, comm, &own);          \
        if (!message.open || own != MPI_REQUEST_NULL)                                          \
            rc = tempi_fwd_##NAME(next, message.op.packed, tempi_wire_count(&message),         \
                                  message.wire, PEER, tag, comm, &packed);                     \
        if (own != MPI_REQUEST_NULL)                                                           \
            *request = own;                                                                    \
        if (packed == MPI_REQUEST_NULL) {                                                      \
            tempi_message_drop(&message);                                                      \
            return own == MPI_REQUEST_NULL ? rc : tempi_loopback_saw(MPI_SUCCESS, comm, PEER); \
        }                                                                                      \
        if (own != MPI_REQUEST_NULL)                                                           \
            track_both(&message, peer, packed, own);                                           \
        else if (track(&message, comm, &packed))                                               \
            *request = packed;                                                                 \
        else                                                                                   \
            rc = tempi_fwd_##NAME(next, buf, count, datatype, PEER, tag, comm, request);       \
        return tempi_loopback_saw(rc, comm, PEER);                                             \
    }

DEFINE_INIT(Send_init, const void *, dest, TEMPI_OP_SEND)
DEFINE_INIT(Ssend_init, const void *, dest, TEMPI_OP_SEND)
DEFINE_INIT(Rsend_init, const void *, dest, TEMPI_OP_SEND)
DEFINE_INIT(Bsend_init, const void *, dest, TEMPI_OP_SEND)
DEFINE_INIT(Recv_init, void *, source, TEMPI_OP_RECV)

/* Before the library starts it. The record stays in the table: only this thread may use the
 * request now. */
static tempi_record *prepare(MPI_Request request)
{
    tempi_lock_acquire(&tempi_records.lock);
    const tempi_record_slot *slot = tempi_records_find(tempi_handle(request));
    tempi_record *record = slot ? slot->record : NULL;
    if (record) {
        record->active = true;
        record->settled = false;
        record->cancelled = false;
        record->error = MPI_SUCCESS;
        record->error_reported = false;
    }
    tempi_lock_release(&tempi_records.lock);
    if (record)
        record->op.stream = tempi_stream_of(tempi_comm_of(record->comm));
    return record;
}

static bool start(tempi_record *record, tempi_op *out, int *rc)
{
    (void)rc;
    *out = record->op;
    return !record->receives;
}

const tempi_record_ops tempi_message_persistent_ops = {.inner = tempi_record_has_no_inner,
                                                       .start = start,
                                                       .check = tempi_record_needs_no_check,
                                                       .refused = tempi_record_is_refused,
                                                       .arrived = tempi_message_arrived,
                                                       .cut = tempi_message_was_cut,
                                                       .finish = tempi_record_rest,
                                                       .once = &tempi_message_ops};

/* ---- one of two requests --------------------------------------------------------------------- */

/* Without packed bytes nothing is to be unpacked. */
static bool start_one(tempi_record *record, tempi_op *out, int *rc)
{
    tempi_persistent_choice_begin(record->choice, &record->op);
    record->settled = !record->choice->takes_packed;
    return record->choice->takes_packed && start(record, out, rc);
}

static bool inner(const tempi_record *record, MPI_Request *out)
{
    if (record->choice->takes_packed)
        *out = record->choice->packed;
    return record->choice->takes_packed;
}

static void started(tempi_record *record, MPI_Request now)
{
    record->choice->packed = now;
}

/* After an error Open MPI frees the one that had it; the program's handle must not outlive that. */
static void lost(tempi_record *record)
{
    MPI_Request own = tempi_request_of(record->request);
    if (!record->choice->takes_packed)
        return;
    record->choice->packed = MPI_REQUEST_NULL;
    tempi_lib.Request_free(&own);
}

static void rest(tempi_record *record)
{
    record->choice->takes_packed = false;
    tempi_record_rest(record);
}

static const tempi_record_ops open_ops = {.inner = inner,
                                          .start = start_one,
                                          .check = tempi_record_needs_no_check,
                                          .refused = tempi_record_is_refused,
                                          .arrived = tempi_message_arrived,
                                          .cut = tempi_message_was_cut,
                                          .started = started,
                                          .lost = lost,
                                          .finish = rest,
                                          .once = &tempi_message_ops};

/* ---- MPI_Start ------------------------------------------------------------------------------- */

static void packed(tempi_record *record)
{
    tempi_message_note(TEMPI_OP_SEND, &record->op);
    tempi_check_op(record->typemap, &record->op, "MPI_Start");
    if (record->gapped)
        tempi_wire_out(&record->op);
}

/* Retries a failed batch one operation at a time. Returns the first error. */
static int pack_each(const tempi_op *ops, tempi_record *const *records, int n)
{
    for (int i = 0; i < n; ++i) {
        if (tempi_pack_run(&ops[i], 1) != TEMPI_OK)
            return tempi_message_failed(tempi_comm_of(records[i]->comm));
        packed(records[i]);
    }
    return MPI_SUCCESS;
}

static int pack_all(const tempi_op *ops, tempi_record *const *records, int n)
{
    if (n == 0)
        return MPI_SUCCESS;
    if (n > 1 && tempi_pack_run(ops, n) == TEMPI_OK) {
        for (int i = 0; i < n; ++i)
            packed(records[i]);
        return MPI_SUCCESS;
    }
    return pack_each(ops, records, n);
}

/* Packs all requests that send, on a device in one launch. After an error none may be started;
 * the packed bytes of the others do no harm. */
static int prepare_all(int count, const MPI_Request requests[])
{
    enum { FEW = 64 };
    tempi_op few_ops[FEW],
        *many = count > FEW ? malloc((size_t)count * (sizeof *many + sizeof(tempi_record *)))
                            : NULL;
    tempi_record *few_records[FEW];
    tempi_op *ops = many ? many : few_ops;
    tempi_record **records = many ? (tempi_record **)(void *)(many + count) : few_records;
    int n = 0, rc = MPI_SUCCESS;
    for (int i = 0; i < count && rc == MPI_SUCCESS; ++i) {
        tempi_record *record = prepare(requests[i]);
        if (!record || !record->ops->start(record, &ops[n], &rc))
            continue;
        records[n++] = record;
        if (many || n < FEW)
            continue;
        rc = pack_all(ops, records, n);
        n = 0;
    }
    if (rc == MPI_SUCCESS)
        rc = pack_all(ops, records, n);
    free(many);
    return rc;
}

/* Marks them inactive: nothing was started, but for those that start alone. */
static void undo(int count, const MPI_Request requests[])
{
    tempi_lock_acquire(&tempi_records.lock);
    for (int i = 0; i < count; ++i) {
        tempi_record_slot *slot = tempi_records_find(tempi_handle(requests[i]));
        if (slot && !slot->record->ops->starts_alone)
            slot->record->active = false;
    }
    tempi_lock_release(&tempi_records.lock);
}

/* What the library is to start for these handles, and for which of them. Returns its number. */
static int set_targets(int count, const MPI_Request requests[], MPI_Request targets[], int which[])
{
    int n = 0;
    tempi_lock_acquire(&tempi_records.lock);
    for (int i = 0; i < count; ++i) {
        const tempi_record_slot *slot = tempi_records_find(tempi_handle(requests[i]));
        if (slot && slot->record->ops->starts_alone)
            continue;
        targets[n] = requests[i];
        which[n] = i;
        if (slot && slot->record->ops->started)
            (void)slot->record->ops->inner(slot->record, &targets[n]);
        ++n;
    }
    tempi_lock_release(&tempi_records.lock);
    return n;
}

/* Open MPI starts another request in place of a buffered send that has not left yet, and gives the
 * program its handle. */
static void follow(MPI_Request *request, MPI_Request now)
{
    tempi_record *record = tempi_records_claim(tempi_handle(*request));
    MPI_Request target = MPI_REQUEST_NULL;
    if (record && record->ops->started && record->ops->inner(record, &target))
        record->ops->started(record, now);
    else
        *request = now;
    if (!record)
        return;
    record->request = tempi_handle(*request);
    if (!tempi_records_put(record))
        TEMPI_LOG(TEMPI_LOG_ERROR, "out of memory: cannot track a persistent request; what it "
                                   "brings from now on may be incomplete");
}

enum { PART = 64 };

/* Starts up to PART of them, for which no memory must be had. */
static int start_targets(const struct tempi_mpi *next, int count, MPI_Request requests[])
{
    MPI_Request targets[PART], before[PART];
    int which[PART];
    const int n = set_targets(count, requests, targets, which);
    if (n == 0)
        return MPI_SUCCESS;
    memcpy(before, targets, (size_t)n * sizeof *before);
    const int rc = n == 1 ? next->Start(targets) : next->Startall(n, targets);
    for (int i = 0; i < n; ++i)
        if (targets[i] != before[i])
            follow(&requests[which[i]], targets[i]);
    return rc;
}

int tempi_impl_Start(const struct tempi_mpi *next, MPI_Request *request)
{
    if (tempi_pending_any())
        tempi_post_all();
    if (!tempi_records_any() || !request)
        return next->Start(request);
    int rc = prepare_all(1, request);
    if (rc == MPI_SUCCESS)
        rc = start_targets(next, 1, request);
    if (rc != MPI_SUCCESS)
        undo(1, request);
    return rc;
}

int tempi_impl_Startall(const struct tempi_mpi *next, int count, MPI_Request requests[])
{
    if (tempi_pending_any())
        tempi_post_all();
    if (!tempi_records_any() || !requests || count <= 0)
        return next->Startall(count, requests);
    int rc = prepare_all(count, requests);
    if (rc != MPI_SUCCESS)
        undo(count, requests);
    for (int first = 0; first < count && rc == MPI_SUCCESS; first += PART)
        rc = start_targets(next, count - first < PART ? count - first : PART, requests + first);
    return rc;
}
