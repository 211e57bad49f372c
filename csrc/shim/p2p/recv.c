/* Blocking and nonblocking receives, matched probes, and the combined calls. */
#include "bounced.h"
#include "interposer/interposer.h"
#include "shim/bounce/bounce.h"
#include "shim/comm/comm_stream.h"
#include "shim/impl.h"
#include "shim/p2p/loopback.h"
#include "shim/p2p/unplanned.h"
#include "shim/request/request.h"

/* The status for the library's call: the program's, or a local one, because the number of
 * received bytes is needed. It is marked, because MPICH may return MPI_SUCCESS from a failed
 * call (request.h) and then leaves the status unchanged. */
typedef struct known {
    MPI_Status *status;
    int source; /* previous value of MPI_SOURCE */
    MPI_Status own;
} known;

enum { MARK = -4711 }; /* no rank, and none of MPI's constants */

static MPI_Status *known_open(known *k, MPI_Status *status)
{
    k->status = status == MPI_STATUS_IGNORE ? &k->own : status;
    k->source = status == MPI_STATUS_IGNORE ? 0 : status->MPI_SOURCE;
    k->status->MPI_SOURCE = MARK;
    return k->status;
}

static bool known_set(known *k)
{
    if (k->status->MPI_SOURCE != MARK)
        return true;
    k->status->MPI_SOURCE = k->source;
    return false;
}

/* After the library's call, which returned rc: unpacks the received bytes. Returns the error
 * code for the program. */
static int received(int rc, const tempi_message *message, known *k, MPI_Comm comm, const char *call)
{
    if (!known_set(k))
        return rc;
    if (rc != MPI_SUCCESS)
        tempi_message_unpack_cut(message, rc, k->status, call);
    else if (tempi_message_unpack(message, tempi_status_bytes(k->status), call) != MPI_SUCCESS)
        return tempi_message_failed(comm);
    return rc;
}

/* After the library's call for a message that was not planned. */
static int received_unplanned(int rc, const tempi_unplanned *m, void *buf, char *packed, known *k,
                              MPI_Comm comm)
{
    if (rc == MPI_SUCCESS && k->status->MPI_SOURCE != MARK) {
        tempi_unplanned_unpack(m, buf, packed, tempi_status_bytes(k->status));
        return rc;
    }
    tempi_message message;
    tempi_message_of(m->type, buf, m->count, TEMPI_OP_RECV, packed, &message);
    return received(rc, &message, k, comm, "MPI_Recv");
}

int tempi_impl_Recv(const struct tempi_mpi *next, void *buf, MPI_Count count, MPI_Datatype datatype,
                    int source, int tag, MPI_Comm comm, MPI_Status *status)
{
    tempi_message message;
    tempi_inline_buffer inline_buffer;
    tempi_message_completed(TEMPI_MESSAGE_ROUNDS_OF_SENDS);
    tempi_loopback_before_blocking(comm, source);
    if (tempi_pending_any())
        tempi_before_blocking();
    known k;
    tempi_unplanned unplanned;
    if (tempi_unplanned_take(buf, count, datatype, TEMPI_OP_RECV, tempi_peer_of(comm, source),
                             &unplanned)) {
        char *packed = tempi_inline_received(&inline_buffer, unplanned.bytes);
        return received_unplanned(tempi_fwd_Recv(next, packed, unplanned.bytes, MPI_PACKED, source,
                                                 tag, comm, known_open(&k, status)),
                                  &unplanned, buf, packed, &k, comm);
    }
    if (source == MPI_PROC_NULL ||
        !tempi_message_take_here(buf, count, datatype, TEMPI_OP_RECV, tempi_peer_of(comm, source),
                                 &inline_buffer, &message))
        return tempi_fwd_Recv(next, buf, count, datatype, source, tag, comm, status);
    message.op.stream = tempi_stream_of(comm);
    const int rc = received(tempi_fwd_Recv(next, message.op.packed, tempi_wire_count(&message),
                                           message.wire, source, tag, comm, known_open(&k, status)),
                            &message, &k, comm, "MPI_Recv");
    tempi_message_drop(&message);
    return rc;
}

int tempi_impl_Irecv(const struct tempi_mpi *next, void *buf, MPI_Count count,
                     MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
                     MPI_Request *request)
{
    tempi_message message;
    tempi_unplanned unplanned;
    if (tempi_pending_any())
        tempi_progress_gathering();
    char *packed = request ? tempi_unplanned_stage(buf, count, datatype, TEMPI_OP_RECV,
                                                   tempi_peer_of(comm, source), &unplanned)
                           : NULL;
    MPI_Request made = MPI_REQUEST_NULL;
    if (packed) {
        const int rc = tempi_fwd_Irecv(next, packed, unplanned.bytes, MPI_PACKED, source, tag, comm,
                                       &made);
        return tempi_unplanned_posted(rc, made, &unplanned, buf, packed, true, comm, request);
    }
    if (!request || source == MPI_PROC_NULL ||
        !tempi_message_take(buf, count, datatype, TEMPI_OP_RECV, tempi_peer_of(comm, source),
                            &message)) {
        tempi_loopback_before(comm, source);
        return tempi_loopback_saw(
            tempi_fwd_Irecv(next, buf, count, datatype, source, tag, comm, request), comm, source);
    }
    message.op.stream = tempi_stream_of(comm);
    const bool expected = tempi_memory_mixed && tempi_loopback_expects(comm, source);
    if (!expected)
        tempi_loopback_before(comm, source);
    const int posted = tempi_fwd_Irecv(next, message.op.packed, tempi_wire_count(&message),
                                       message.wire, source, tag, comm, &made);
    const int rc = tempi_request_posted(posted, made, &message, true, comm, request);
    if (!expected)
        return tempi_loopback_saw(rc, comm, source);
    const bool there = posted == MPI_SUCCESS && made != MPI_REQUEST_NULL;
    tempi_loopback_expected(comm, there ? MPI_SUCCESS : MPI_ERR_OTHER, tag,
                            there ? *request : MPI_REQUEST_NULL);
    return rc;
}

int tempi_impl_Mrecv(const struct tempi_mpi *next, void *buf, MPI_Count count,
                     MPI_Datatype datatype, MPI_Message *matched, MPI_Status *status)
{
    tempi_message message;
    tempi_inline_buffer inline_buffer;
    tempi_message_completed(TEMPI_MESSAGE_ROUNDS_OF_SENDS);
    if (tempi_pending_any())
        tempi_before_blocking();
    if (!tempi_message_take_here(buf, count, datatype, TEMPI_OP_RECV, tempi_peer_none(),
                                 &inline_buffer, &message))
        return tempi_fwd_Mrecv(next, buf, count, datatype, matched, status);
    known k;
    const int rc = received(tempi_fwd_Mrecv(next, message.op.packed, tempi_wire_count(&message),
                                            message.wire, matched, known_open(&k, status)),
                            &message, &k,
                            MPI_COMM_SELF /* a matched message does not give its communicator */,
                            "MPI_Mrecv");
    tempi_message_drop(&message);
    return rc;
}

int tempi_impl_Imrecv(const struct tempi_mpi *next, void *buf, MPI_Count count,
                      MPI_Datatype datatype, MPI_Message *matched, MPI_Request *request)
{
    tempi_message message;
    if (tempi_pending_any())
        tempi_progress_gathering();
    if (!request ||
        !tempi_message_take(buf, count, datatype, TEMPI_OP_RECV, tempi_peer_none(), &message))
        return tempi_fwd_Imrecv(next, buf, count, datatype, matched, request);
    MPI_Request made = MPI_REQUEST_NULL;
    const int rc = tempi_fwd_Imrecv(next, message.op.packed, tempi_wire_count(&message),
                                    message.wire, matched, &made);
    return tempi_request_posted(rc, made, &message, true, MPI_COMM_SELF, request);
}

/* One half of a combined call: the library's arguments in place of the program's. */
typedef struct half {
    bool ours;
    tempi_message message;
    void *buffer;
    MPI_Count count;
    MPI_Datatype datatype;
} half;

/* In memory of the pool: a library whose send fails may leave the receive posted. */
static bool half_is_ours(half *h, int peer, MPI_Comm comm, tempi_operation operation)
{
    const tempi_peer whom = tempi_peer_of(comm, peer);
    tempi_unplanned unplanned;
    if (peer == MPI_PROC_NULL)
        return false;
    char *packed = tempi_unplanned_stage(h->buffer, h->count, h->datatype, operation, whom,
                                         &unplanned);
    if (!packed)
        return tempi_message_take(h->buffer, h->count, h->datatype, operation, whom, &h->message);
    tempi_message_of(unplanned.type, h->buffer, h->count, operation, packed, &h->message);
    return true;
}

static void half_take(half *h, const void *buffer, MPI_Count count, MPI_Datatype datatype, int peer,
                      MPI_Comm comm, tempi_operation operation)
{
    h->buffer = (void *)(uintptr_t)buffer;
    h->count = count;
    h->datatype = datatype;
    h->ours = half_is_ours(h, peer, comm, operation);
    if (h->ours) {
        h->message.op.stream = tempi_stream_of(comm);
        h->buffer = h->message.op.packed;
        h->count = tempi_wire_count(&h->message);
        h->datatype = h->message.wire;
    }
}

static void half_end(half *h)
{
    if (h->ours)
        tempi_message_drop(&h->message);
}

/* Sends and receives the packed bytes of tempi's halves, in one call of the library. */
static int exchange(const struct tempi_mpi *next, half *out, int dest, int sendtag, half *in,
                    int source, int recvtag, MPI_Comm comm, MPI_Status *status, const char *call)
{
    if (out->ours && tempi_message_pack(&out->message, call) != MPI_SUCCESS)
        return tempi_message_failed(comm);
    known k;
    const int rc = tempi_fwd_Sendrecv(next, out->buffer, out->count, out->datatype, dest, sendtag,
                                      in->buffer, in->count, in->datatype, source, recvtag, comm,
                                      in->ours ? known_open(&k, status) : status);
    return in->ours ? received(rc, &in->message, &k, comm, call) : rc;
}

/* Before the library carries a combined call, whose receive blocks; `own`: it is known to
 * receive its own message. */
static void between_threads(MPI_Comm comm, int dest, int source, bool own)
{
    tempi_loopback_before_blocking(comm, source);
    if (!own)
        tempi_loopback_before(comm, dest);
    if (tempi_memory_mixed && tempi_threads_are_shared() && tempi_pending_any())
        tempi_before_blocking();
}

int tempi_impl_Sendrecv(const struct tempi_mpi *next, const void *sendbuf, MPI_Count sendcount,
                        MPI_Datatype sendtype, int dest, int sendtag, void *recvbuf,
                        MPI_Count recvcount, MPI_Datatype recvtype, int source, int recvtag,
                        MPI_Comm comm, MPI_Status *status)
{
    tempi_message_waited();
    if (tempi_pending_any())
        tempi_before_blocking();
    const bool own = tempi_memory_mixed &&
                     tempi_loopback_matches(comm, dest, sendtag, source, recvtag);
    int64_t bytes;
    if (own && tempi_loopback_move(comm, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype,
                                   &bytes, "MPI_Sendrecv")) {
        tempi_loopback_status(status, dest, sendtag, bytes);
        return MPI_SUCCESS;
    }
    between_threads(comm, dest, source, own);
    half out, in;
    half_take(&out, sendbuf, sendcount, sendtype, dest, comm, TEMPI_OP_SEND);
    half_take(&in, recvbuf, recvcount, recvtype, source, comm, TEMPI_OP_RECV);
    const int rc = exchange(next, &out, dest, sendtag, &in, source, recvtag, comm, status,
                            "MPI_Sendrecv");
    half_end(&out);
    half_end(&in);
    return own ? rc : tempi_loopback_saw(rc, comm, dest);
}

/* The library would need its own buffer here; tempi's halves are packed already. Each half that
 * takes part must be tempi's: with only one of them no other call has the same meaning. */
int tempi_impl_Sendrecv_replace(const struct tempi_mpi *next, void *buf, MPI_Count count,
                                MPI_Datatype datatype, int dest, int sendtag, int source,
                                int recvtag, MPI_Comm comm, MPI_Status *status)
{
    tempi_message_waited();
    if (tempi_pending_any())
        tempi_before_blocking();
    const bool own = tempi_memory_mixed &&
                     tempi_loopback_matches(comm, dest, sendtag, source, recvtag);
    int64_t bytes;
    if (own && tempi_loopback_stays(buf, count, datatype, &bytes)) {
        tempi_loopback_status(status, dest, sendtag, bytes);
        return MPI_SUCCESS;
    }
    between_threads(comm, dest, source, own);
    half out, in;
    half_take(&out, buf, count, datatype, dest, comm, TEMPI_OP_SEND);
    half_take(&in, buf, count, datatype, source, comm, TEMPI_OP_RECV);
    const bool ours = (out.ours || in.ours) && (out.ours || dest == MPI_PROC_NULL) &&
                      (in.ours || source == MPI_PROC_NULL);
    const int rc = ours ? exchange(next, &out, dest, sendtag, &in, source, recvtag, comm, status,
                                   "MPI_Sendrecv_replace")
                        : tempi_fwd_Sendrecv_replace(next, buf, count, datatype, dest, sendtag,
                                                     source, recvtag, comm, status);
    half_end(&out);
    half_end(&in);
    return own ? rc : tempi_loopback_saw(rc, comm, dest);
}

#ifdef TEMPI_ACTS_IN_Isendrecv /* absent if mpi.h lacks them */
/* The library carries these: no other calls make one request of a send and a receive. */
int tempi_impl_Isendrecv(const struct tempi_mpi *next, const void *sendbuf, MPI_Count sendcount,
                         MPI_Datatype sendtype, int dest, int sendtag, void *recvbuf,
                         MPI_Count recvcount, MPI_Datatype recvtype, int source, int recvtag,
                         MPI_Comm comm, MPI_Request *request)
{
    if (!next->Isendrecv)
        return TEMPI_UNAVAILABLE;
    tempi_loopback_before(comm, source);
    tempi_loopback_before(comm, dest);
    if (tempi_pending_any())
        tempi_before_sending(comm);
    const int rc =
        tempi_bounces()
            ? tempi_bounced_Isendrecv_c(next, sendbuf, sendcount, sendtype, dest, sendtag, recvbuf,
                                        recvcount, recvtype, source, recvtag, comm, request)
            : tempi_fwd_Isendrecv(next, sendbuf, sendcount, sendtype, dest, sendtag, recvbuf,
                                  recvcount, recvtype, source, recvtag, comm, request);
    return tempi_loopback_saw(tempi_loopback_saw(rc, comm, source), comm, dest);
}

int tempi_impl_Isendrecv_replace(const struct tempi_mpi *next, void *buf, MPI_Count count,
                                 MPI_Datatype datatype, int dest, int sendtag, int source,
                                 int recvtag, MPI_Comm comm, MPI_Request *request)
{
    if (!next->Isendrecv_replace)
        return TEMPI_UNAVAILABLE;
    tempi_loopback_before(comm, source);
    tempi_loopback_before(comm, dest);
    if (tempi_pending_any())
        tempi_before_sending(comm);
    const int rc = tempi_bounces()
                       ? tempi_bounced_Isendrecv_replace_c(next, buf, count, datatype, dest,
                                                           sendtag, source, recvtag, comm, request)
                       : tempi_fwd_Isendrecv_replace(next, buf, count, datatype, dest, sendtag,
                                                     source, recvtag, comm, request);
    return tempi_loopback_saw(tempi_loopback_saw(rc, comm, source), comm, dest);
}
#endif
