#include "shim/coll/coll_request.h"
#include "base/config.h"
#include "base/stats.h"
#include "base/thread.h"
#include "base/trace.h"
#include "shim/coll/block_exchange.h"
#include "shim/coll/coll_posts.h"
#include "shim/coll/coll_round.h"
#include "shim/coll/neighbor_order.h"
#include "shim/coll/node_part.h"
#include "shim/coll/sides.h"
#include "shim/coll/split_call.h"
#include "shim/request/deferred_sends.h"
#include "shim/request/record_ops.h"
#include "shim/request/request.h"

#include <stdlib.h>
#include <string.h>

/* ---- records --------------------------------------------------------------------------------- */

/* The one that stands in the place of a persistent request while that is active. */
static bool inner(const tempi_record *record, MPI_Request *out)
{
    const tempi_coll_request *r = record->collective;
    if (!record->active || !r->persistent)
        return false;
    *out = r->inner;
    return true;
}

static bool arrived(tempi_record *record, const MPI_Status *status, tempi_op *out)
{
    (void)status, (void)out;
    /* What another thread has left there, which the library has ordered as well. */
    (void)__atomic_load_n(&record->collective->completed, __ATOMIC_ACQUIRE);
    record->settled = true;
    return false;
}

static void free_remote(tempi_coll_request *r)
{
    if (!r->remote)
        return;
    if (r->initialized)
        tempi_lib.Request_free(&r->passed);
    tempi_remote_close(r->remote);
    free(r->remote);
}

/* One that has no record yet, or none any more. */
static void discard(tempi_coll_request *r)
{
    tempi_persistent_call_free(r->persistent);
    free_remote(r);
    free(r->offers.open);
    free(r->offers.tails.of);
    free(r->memory);
    free(r);
}

static void release(tempi_record *record)
{
    tempi_coll_request *r = record->collective;
    tempi_coll_end_round(r);
    tempi_node_comm_release(r->owner);
    discard(r);
    tempi_record_release(record);
}

static const tempi_record_ops once_ops = {.inner = inner,
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

/* ---- starting -------------------------------------------------------------------------------- */

/* For the operations of both sides, and what may arrive from each process. False: there is none. */
static bool take_memory(tempi_coll_request *r, tempi_blocks *out)
{
    const size_t nout = (size_t)out->edges->n + 1, nin = (size_t)r->in.edges->n + 1,
                 ops = (nout + nin) * sizeof *out->ops,
                 bytes = ops + (size_t)r->node->size * sizeof *r->arrivals;
    out->ops = r->in.ops = NULL;
    if (r->room < bytes) {
        free(r->memory);
        r->memory = malloc(bytes);
        r->room = r->memory ? bytes : 0;
        if (!r->memory)
            return false;
    }
    memset(r->memory, 0, bytes);
    out->ops = r->memory;
    r->in.ops = out->ops + nout;
    r->arrivals = (tempi_arrival *)(void *)((char *)r->memory + ops);
    return true;
}

static void find_arrivals(tempi_coll_request *r)
{
    const tempi_edges *edges = r->in.edges;
    const int size = r->node->size;
    r->narrivals = 0;
    for (int i = 1; i < size; ++i) {
        const int source = (r->node->rank - i + size) % size;
        tempi_arrival a = {
            .source = source, .first = edges->first[source], .n = tempi_edges_count(edges, source)};
        for (int k = 0; k < a.n; ++k)
            a.bytes += r->in.ops[a.first + k].n;
        if (a.bytes > 0)
            r->arrivals[r->narrivals++] = a;
    }
    r->left = r->narrivals;
}

static int move_own(const tempi_coll_request *r, const tempi_blocks *out)
{
    if (tempi_block_move_own(r->node, out, &r->in))
        return MPI_SUCCESS;
    tempi_lib.Comm_call_errhandler(out->comm, MPI_ERR_TRUNCATE);
    return MPI_ERR_TRUNCATE;
}

/* What goes to other nodes. */
static int pass_on(tempi_coll_request *r)
{
    if (!r->remote)
        return MPI_SUCCESS;
    int rc = tempi_remote_start(r->remote, !r->persistent);
    if (rc == MPI_SUCCESS)
        rc = r->persistent ? tempi_lib.Start(&r->passed)
                           : tempi_remote_pass(r->remote, TEMPI_REMOTE_NONBLOCKING, &r->passed);
    r->passing = rc == MPI_SUCCESS;
    r->passed_error = MPI_SUCCESS;
    return r->passing ? MPI_SUCCESS : tempi_remote_end(r->remote, rc);
}

/* Whether the blocks are replaced by what comes, in place, perhaps before the others have read
 * them.
 */
static bool replaces(const tempi_coll_request *r, const tempi_blocks *out)
{
    return out->buffer == r->in.buffer && out->entry < 0;
}

static int describe(tempi_coll_request *r, tempi_blocks *out, tempi_device_offers *offers)
{
    int rc = take_memory(r, out) ? tempi_blocks_describe(out) : tempi_blocks_no_memory(out->comm);
    if (rc == MPI_SUCCESS)
        rc = tempi_blocks_describe(&r->in);
    if (rc == MPI_SUCCESS)
        find_arrivals(r);
    return rc == MPI_SUCCESS ? tempi_device_posts_begin(&r->moves, r->node, out, &r->in, offers)
                             : rc;
}

/* `rc`: of the description. On an error the processes of this node are notified, and blocks for
 * other nodes are still sent. */
static int send_all(tempi_coll_request *r, const tempi_blocks *out,
                    const tempi_device_offers *described, int rc)
{
    const int passed = pass_on(r);
    rc = rc == MPI_SUCCESS ? passed : rc;
    const bool failed = rc != MPI_SUCCESS;
    const tempi_coll_sending sending = {.out = out,
                                        .in = &r->in,
                                        .failed = failed,
                                        .offers = replaces(r, out) || failed ? NULL : &r->offers,
                                        .host = out->nstaged == 0, /* not in staging buffers */
                                        .described = described};
    const int sent = tempi_coll_posts_send(r->node, r->name, &sending);
    rc = rc == MPI_SUCCESS ? sent : rc;
    return rc == MPI_SUCCESS ? move_own(r, out) : rc;
}

static bool track_once(tempi_coll_request *r)
{
    r->request = r->record->request = tempi_handle(r->inner);
    r->record->active = true;
    return tempi_records_put(r->record);
}

/* Makes the generalized request, and receives what is there. */
static int follow(tempi_coll_request *r)
{
    const int rc = tempi_proxy_start(&r->inner);
    if (rc != MPI_SUCCESS)
        return rc;
    if (!r->persistent && !track_once(r)) {
        tempi_proxy_end(&r->inner);
        return tempi_blocks_no_memory(r->in.comm);
    }
    tempi_coll_follow(r);
    return MPI_SUCCESS;
}

static void give_up(tempi_coll_request *r)
{
    if (tempi_coll_offers_left(&r->offers))
        tempi_coll_offers_fail(&r->offers, r->node, r->name);
    if (r->passing) {
        (void)tempi_lib.Wait(&r->passed, MPI_STATUS_IGNORE);
        (void)tempi_remote_end(r->remote, MPI_ERR_OTHER);
        r->passing = false;
    }
    tempi_coll_end_round(r);
}

/* Edges to or from a root are those of the last call on the communicator: a request that will be
 * started again gets its own. Without memory for them it keeps no operations. */
static void own_edges(tempi_coll_request *r, const tempi_collective *call, tempi_blocks *out)
{
    const tempi_edges *shared = &r->node->one;
    tempi_persistent_call *k = r->persistent;
    if (!k || r->remote || (out->edges != shared && r->in.edges != shared) ||
        (!k->one.first && !tempi_edges_none(r->node->size, &k->one)))
        return;
    tempi_edges_one(&k->one, r->node->size, r->node->peers_begin + call->root);
    out->edges = out->edges == shared ? &k->one : out->edges;
    r->in.edges = r->in.edges == shared ? &k->one : r->in.edges;
}

/* Whether the next start has the same operations: of blocks in host memory, and of edges that do
 * not depend on the root of other calls. */
static bool keeps(const tempi_coll_request *r, const tempi_collective *call,
                  const tempi_blocks *out)
{
    const tempi_edges *shared = &r->node->one;
    const bool fixed = call->pattern == TEMPI_PATTERN_ALL ||
                       call->pattern == TEMPI_PATTERN_NEIGHBORS ||
                       (!r->remote && out->edges != shared && r->in.edges != shared);
    return r->persistent && fixed && !tempi_memory_mixed && !tempi_config.check &&
           out->nstaged == 0 && r->in.nstaged == 0;
}

/* What is left to do after a start with that result. */
static int follow_up(tempi_coll_request *r, const tempi_collective *call, int rc)
{
    if (rc == MPI_SUCCESS)
        rc = follow(r);
    if (rc != MPI_SUCCESS) {
        r->node->failed = true;
        give_up(r);
    }
    if (r->remote)
        tempi_split_count(call, r->remote);
    else
        tempi_stat_add(TEMPI_STAT_collectives, 1);
    return rc;
}

/* One start. `out` and `in` as tempi_sides_of made them; on failure nothing of it is left. Caller
 * holds the communicator's lock: several threads may start persistent requests of it. */
static int start(tempi_coll_request *r, const tempi_collective *call, tempi_blocks *out,
                 const tempi_blocks *in)
{
    const double begun = tempi_trace_begin();
    tempi_device_offers described = {0};
    r->in = *in;
    r->in.outlives = !r->persistent;
    r->in.late = out->late = !r->persistent;
    r->in.stays = out->stays = out->buffer != in->buffer;
    r->out.ops = NULL;
    r->error = MPI_SUCCESS;
    r->active = true;
    own_edges(r, call, out);
    int rc = describe(r, out, &described);
    r->kept = rc == MPI_SUCCESS && keeps(r, call, out);
    rc = send_all(r, out, &described, rc);
    tempi_device_offers_close(&described);
    if (tempi_coll_offers_left(&r->offers) || r->kept) {
        if (!r->persistent)
            tempi_blocks_keep(out);
        r->out = *out;
    } else {
        tempi_blocks_close(out);
    }
    const int64_t bytes = out->bytes;
    rc = follow_up(r, call, rc);
    tempi_stat_add(TEMPI_STAT_collective_bytes, bytes);
    tempi_trace_end(begun, "exchange", call->name, bytes);
    return rc;
}

/* Another one with the same operations. */
static int start_kept(tempi_coll_request *r, const tempi_collective *call)
{
    const double begun = tempi_trace_begin();
    r->in.comm = r->out.comm = call->comm;
    r->error = MPI_SUCCESS;
    r->active = true;
    for (int i = 0; i < r->narrivals; ++i) {
        tempi_arrival *a = &r->arrivals[i];
        a->post = NULL;
        a->came = 0;
        a->claimed = a->ended = false;
    }
    r->left = r->narrivals;
    const int64_t bytes = r->out.bytes;
    const int rc = follow_up(r, call, send_all(r, &r->out, NULL, MPI_SUCCESS));
    tempi_stat_add(TEMPI_STAT_collective_bytes, bytes);
    tempi_trace_end(begun, "exchange", call->name, bytes);
    return rc;
}

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

static int start_new(tempi_coll_request *r, const tempi_collective *call, tempi_blocks *out,
                     const tempi_blocks *in, MPI_Request *request)
{
    if (!record_of(r, &once_ops)) {
        discard(r);
        return tempi_blocks_no_memory(call->comm);
    }
    r->name.call = __atomic_add_fetch(&r->node->posted, 1, __ATOMIC_RELAXED);
    tempi_node_comm_retain(r->owner);
    const int rc = start(r, call, out, in);
    if (rc == MPI_SUCCESS)
        *request = r->inner;
    else
        release(r->record);
    return rc;
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
    tempi_coll_request *r = calloc(1, sizeof *r);
    *result = r ? MPI_SUCCESS : tempi_blocks_no_memory(call->comm);
    if (!r)
        return true;
    const bool ours = divide(r, call, &out, &in, result);
    if (ours && *result == MPI_SUCCESS)
        *result = start_new(r, call, &out, &in, request);
    else
        discard(r);
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
    tempi_blocks out, in;
    return tempi_sides_of(call, r->persistent->buffers, &out, &in) &&
                   (!r->remote || tempi_split_restrict(call, &out, &in))
               ? start(r, call, &out, &in)
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
    *rc = r->kept && !tempi_memory_mixed ? start_kept(r, call) : start_anew(r, call);
    end_start(r->owner);
    return false;
}

/* The library's request was started, too. */
static void rest(tempi_record *record)
{
    MPI_Request request = tempi_request_of(record->request);
    (void)tempi_lib.Wait(&request, MPI_STATUS_IGNORE);
    tempi_coll_end_round(record->collective);
    tempi_record_rest(record);
}

static const tempi_record_ops persistent_ops = {.inner = inner,
                                                .start = start_again,
                                                .check = tempi_record_needs_no_check,
                                                .refused = tempi_record_is_refused,
                                                .arrived = arrived,
                                                .cut = tempi_record_was_not_cut,
                                                .finish = rest,
                                                .once = &once_ops,
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

/* A persistent request that moves nothing. */
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
        discard(r);
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
    tempi_coll_request *r = calloc(1, sizeof *r);
    *result = MPI_SUCCESS;
    if (r)
        r->persistent = tempi_persistent_call_make(&own, buffers, &out, &in);
    if (!r || !r->persistent) {
        free(r);
        *result = tempi_blocks_no_memory(call->comm);
        return true;
    }
    /* Of the kept arguments: the program may free its types. */
    const bool ours = tempi_sides_of(&r->persistent->call, r->persistent->buffers, &out, &in) &&
                      divide(r, &r->persistent->call, &out, &in, result);
    if (ours && *result == MPI_SUCCESS)
        *result = init_new(r, request);
    else
        discard(r);
    return ours;
}
