#include "shim/coll/coll_request.h"
#include "base/stats.h"
#include "base/thread.h"
#include "base/trace.h"
#include "shim/coll/block_exchange.h"
#include "shim/coll/coll_round.h"
#include "shim/coll/coll_start.h"
#include "shim/coll/node_part.h"
#include "shim/coll/request_pool.h"
#include "shim/coll/sides.h"
#include "shim/coll/split_call.h"
#include "shim/request/record_ops.h"
#include "shim/request/request.h"

#include <stdlib.h>

/* ---- records --------------------------------------------------------------------------------- */

/* The one that stands in the place of a persistent request while that is active. */
static bool inner(const tempi_record *record, MPI_Request *out)
{
    tempi_coll_request *r = record->collective;
    if (!record->active)
        return false;
    tempi_coll_hand_over(r);
    if (r->persistent)
        *out = r->inner;
    return r->persistent;
}

static bool ended(const tempi_record *record)
{
    return record->active && tempi_coll_has_ended(record->collective);
}

/* The library has freed a handle that it was asked about. */
static void take_back_handle(tempi_coll_request *r)
{
    if (r->handed_over)
        r->inner = MPI_REQUEST_NULL;
    r->handed_over = false;
}

static bool arrived(tempi_record *record, const MPI_Status *status, tempi_op *out)
{
    (void)status, (void)out;
    /* What another thread has left there. */
    (void)__atomic_load_n(&record->collective->completed, __ATOMIC_ACQUIRE);
    record->settled = true;
    return false;
}

static void release(tempi_record *record)
{
    tempi_coll_request *r = record->collective;
    tempi_coll_end_round(r);
    take_back_handle(r);
    tempi_node_comm_release(r->owner);
    tempi_coll_request_free(r);
    tempi_record_release(record);
}

static const tempi_record_ops once_ops = {.inner = inner,
                                          .ended = ended,
                                          .start = tempi_record_never_starts,
                                          .check = tempi_record_needs_no_check,
                                          .refused = tempi_record_is_refused,
                                          .arrived = arrived,
                                          .cut = tempi_record_was_not_cut,
                                          .finish = release,
                                          .settles_without_status = true};

static tempi_record *record_of(tempi_coll_request *r, const tempi_record_ops *ops)
{
    tempi_record *record = tempi_record_new();
    if (!record)
        return NULL;
    record->ops = ops;
    record->collective = r;
    record->comm = tempi_handle(MPI_COMM_SELF);
    return r->record = record;
}

/* ---- nonblocking requests -------------------------------------------------------------------- */

static bool is_corrected(const tempi_collective *call)
{
    return call->node->corrected[call->function];
}

/* The processes with which it exchanges blocks: those of this node, if others are elsewhere. What
 * goes to these is opened. `sides`: of the whole call; made those of the part. False: the library
 * must do the call. */
static bool divide(tempi_coll_request *r, const tempi_collective *call, tempi_blocks *out,
                   tempi_blocks *in, int *result)
{
    r->owner = r->node = call->node;
    if (!call->node->split && !call->alone)
        return true;
    r->remote = calloc(1, sizeof *r->remote);
    if (!r->remote) {
        *result = tempi_blocks_no_memory(call->comm);
        return true;
    }
    r->node = tempi_split_part(call)->node;
    r->remote->reorders = is_corrected(call);
    const bool ours = tempi_split_open(call, out, in, r->remote, result);
    return (*result == MPI_SUCCESS && tempi_remote_reorder(r->remote)) || ours;
}

static int start_new(tempi_coll_request *r, const tempi_collective *call, MPI_Request *request)
{
    if (!record_of(r, &once_ops)) {
        tempi_coll_request_free(r);
        return tempi_blocks_no_memory(call->comm);
    }
    r->name.call = __atomic_add_fetch(&r->node->posted, 1, __ATOMIC_RELAXED);
    tempi_node_comm_retain(r->owner);
    const int rc = tempi_coll_start(r, call);
    if (rc == MPI_SUCCESS)
        *request = r->inner;
    else
        release(r->record);
    return rc;
}

/* Whether there is nothing to wait for. */
static bool is_own(const tempi_collective *call, const tempi_blocks *out, const tempi_blocks *in)
{
    const tempi_node_comm *node = call->node;
    return !tempi_memory_mixed && !node->split && !call->alone &&
           tempi_blocks_are_own(out, node->rank) && tempi_blocks_are_own(in, node->rank);
}

/* The request is one of the library that is complete: it needs no record. */
static int start_own(const tempi_collective *call, tempi_blocks *out, tempi_blocks *in,
                     MPI_Request *request)
{
    const double begun = tempi_trace_begin();
    (void)__atomic_add_fetch(&call->node->posted, 1, __ATOMIC_RELAXED);
    const int rc = tempi_block_exchange_own(call->node, out, in);
    tempi_stat_add(TEMPI_STAT_collectives, 1);
    tempi_stat_add(TEMPI_STAT_collective_bytes, out->bytes);
    tempi_trace_end(begun, "exchange", call->name, out->bytes);
    return rc == MPI_SUCCESS
               ? tempi_lib.Isend(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, call->comm, request)
               : rc;
}

static bool decides_alone(const tempi_collective *call)
{
    return tempi_collective_decides_alone(call->node, call->function);
}

/* By this process, or those of its node. */
static bool split_wanted(const tempi_collective *call, const tempi_blocks *out,
                         const tempi_blocks *in)
{
    return (is_corrected(call) && tempi_split_part(call)) || tempi_split_wanted(call, out, in);
}

/* The call as this process makes it. If the processes could not agree before, and the library's
 * blocks come in the wrong order, each one puts its own right. */
static tempi_collective alone_or_not(const tempi_collective *call, bool agreed)
{
    tempi_collective own = *call;
    own.alone = !agreed && !decides_alone(call) && is_corrected(call);
    return own;
}

/* The processes have agreed before, or will. */
static bool is_carried(const tempi_collective *call, const tempi_blocks *out,
                       const tempi_blocks *in)
{
    if (decides_alone(call))
        return split_wanted(call, out, in);
    const bool decided = tempi_collective_is_decided(call->node, call->function);
    if (!decided)
        call->node->needed[call->function] |= tempi_collective_needs(out, in);
    return decided;
}

/* An error handler may call MPI while a start has the lock: what it calls does not progress. */
static void begin_start(tempi_node_comm *node)
{
    tempi_lock_acquire(&node->starting);
    ++tempi_this_thread.posting;
    tempi_memory_begin_call();
}

static void end_start(tempi_node_comm *node)
{
    tempi_memory_end_call();
    --tempi_this_thread.posting;
    tempi_lock_release(&node->starting);
}

static bool start_once(const tempi_collective *called, const tempi_bounce_argument *buffers,
                       MPI_Request *request, int *result)
{
    tempi_blocks out, in;
    const tempi_collective own = alone_or_not(called, tempi_node_comm_has_posts(called->node)),
                           *call = &own;
    if (!tempi_sides_of(call, buffers, &out, &in) || !is_carried(call, &out, &in))
        return false;
    if (is_own(call, &out, &in)) {
        *result = start_own(call, &out, &in, request);
        return true;
    }
    tempi_coll_request *r = tempi_coll_request_new();
    *result = r ? MPI_SUCCESS : tempi_blocks_no_memory(call->comm);
    if (!r)
        return true;
    r->out = out;
    r->in = in;
    const bool ours = divide(r, call, &r->out, &r->in, result);
    if (ours && *result == MPI_SUCCESS)
        *result = start_new(r, call, request);
    else
        tempi_coll_request_free(r);
    return ours;
}

bool tempi_coll_request_start(const tempi_collective *call, const tempi_bounce_argument *buffers,
                              MPI_Request *request, int *result)
{
    if (!request)
        return false;
    tempi_coll_use_hooks();
    begin_start(call->node);
    const bool carried = start_once(call, buffers, request, result);
    end_start(call->node);
    return carried;
}

/* ---- persistent requests --------------------------------------------------------------------- */

static int start_anew(tempi_coll_request *r, const tempi_collective *call)
{
    return tempi_sides_of(call, r->persistent->buffers, &r->out, &r->in) &&
                   (!r->remote || tempi_split_restrict(call, &r->out, &r->in))
               ? tempi_coll_start(r, call)
               : MPI_ERR_ARG;
}

/* The processes have agreed at the beginning. */
static bool start_again(tempi_record *record, tempi_op *op, int *rc)
{
    tempi_coll_request *r = record->collective;
    tempi_collective *call = &r->persistent->call;
    (void)op;
    call->comm = tempi_coll_comm_of(r->owner);
    if (r->active) { /* the program is wrong */
        tempi_lib.Comm_call_errhandler(call->comm, *rc = MPI_ERR_REQUEST);
        return false;
    }
    ++r->name.call;
    begin_start(r->owner);
    *rc = r->kept && !tempi_memory_mixed ? tempi_coll_start_kept(r, call) : start_anew(r, call);
    end_start(r->owner);
    record->active = *rc == MPI_SUCCESS;
    return false;
}

static void rest(tempi_record *record)
{
    tempi_coll_end_round(record->collective);
    take_back_handle(record->collective);
    tempi_record_rest(record);
}

static const tempi_record_ops persistent_ops = {.inner = inner,
                                                .ended = ended,
                                                .start = start_again,
                                                .check = tempi_record_needs_no_check,
                                                .refused = tempi_record_is_refused,
                                                .arrived = arrived,
                                                .cut = tempi_record_was_not_cut,
                                                .finish = rest,
                                                .once = &once_ops,
                                                .starts_alone = true,
                                                .settles_without_status = true};

static bool track(tempi_coll_request *r)
{
    tempi_record *record = record_of(r, &persistent_ops);
    if (!record)
        return false;
    record->request = r->request;
    if (tempi_records_put(record))
        return true;
    tempi_record_free(record);
    return false;
}

/* A persistent request that moves nothing, and is never started. */
static int make_empty(MPI_Request *request)
{
    static char nothing;
    return tempi_null_sends_mislead && tempi_lib.Bcast_init
               ? tempi_lib.Bcast_init(&nothing, 0, MPI_BYTE, 0, MPI_COMM_SELF, MPI_INFO_NULL,
                                      request)
               : tempi_lib.Send_init(&nothing, 0, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_SELF,
                                     request);
}

static int make_request(tempi_coll_request *r)
{
    tempi_persistent_call *k = r->persistent;
    const int rc = make_empty(&k->request);
    if (rc != MPI_SUCCESS)
        return rc;
    r->request = tempi_handle(k->request);
    if (track(r))
        return MPI_SUCCESS;
    tempi_lib.Request_free(&k->request);
    return tempi_blocks_no_memory(k->call.comm);
}

/* The library's request for what goes to other nodes. */
static int init_remote(tempi_coll_request *r)
{
    if (!r->remote)
        return MPI_SUCCESS;
    const int rc = tempi_remote_pass(r->remote, TEMPI_REMOTE_PERSISTENT, &r->passed);
    r->initialized = rc == MPI_SUCCESS;
    return rc;
}

static int init_new(tempi_coll_request *r, MPI_Request *request)
{
    r->name.channel = __atomic_add_fetch(&r->node->channels, 1, __ATOMIC_RELAXED);
    int rc = init_remote(r);
    if (rc == MPI_SUCCESS)
        rc = make_request(r);
    if (rc != MPI_SUCCESS) {
        tempi_coll_request_free(r);
        return rc;
    }
    tempi_node_comm_retain(r->owner);
    *request = r->persistent->request;
    return MPI_SUCCESS;
}

/* Whether the processes carry it: the same in all that exchange blocks. */
static bool wanted(const tempi_collective *call, const tempi_blocks *out, const tempi_blocks *in)
{
    const bool all = call->node->split
                         ? split_wanted(call, out, in)
                         : is_corrected(call) || tempi_collective_wanted(call, out, in);
    return all && (decides_alone(call) ||
                   tempi_node_comm_connect(call->comm, call->node, TEMPI_CONNECT_POSTS));
}

bool tempi_coll_request_init(const tempi_collective *call, const tempi_bounce_argument *buffers,
                             MPI_Request *request, int *result)
{
    tempi_blocks out, in;
    if (!request || !tempi_sides_of(call, buffers, &out, &in))
        return false;
    const bool carried = wanted(call, &out, &in);
    const tempi_collective own = alone_or_not(call, carried);
    if (!carried && !own.alone)
        return false;
    tempi_coll_use_hooks();
    tempi_coll_request *r = tempi_coll_request_new();
    *result = MPI_SUCCESS;
    if (r)
        r->persistent = tempi_persistent_call_make(&own, buffers, &out, &in);
    if (!r || !r->persistent) {
        if (r)
            tempi_coll_request_free(r);
        *result = tempi_blocks_no_memory(call->comm);
        return true;
    }
    /* Of the kept arguments: the program may free its types. */
    const bool ours = tempi_sides_of(&r->persistent->call, r->persistent->buffers, &out, &in) &&
                      divide(r, &r->persistent->call, &out, &in, result);
    if (ours && *result == MPI_SUCCESS)
        *result = init_new(r, request);
    else
        tempi_coll_request_free(r);
    return ours;
}
