#include "shim/coll/coll_request.h"
#include "base/log.h"
#include "base/stats.h"
#include "base/trace.h"
#include "exchange/block_bytes.h"
#include "exchange/copy_choice.h"
#include "exchange/exchange.h"
#include "shim/coll/kept_call.h"
#include "shim/coll/sides.h"
#include "shim/request/deferred_sends.h"
#include "shim/request/record_ops.h"
#include "shim/request/request.h"
#include "shim/request/waiting.h"

#include <stdlib.h>
#include <string.h>

/* What comes from one process. */
typedef struct arrival {
    int source, first, n; /* operations */
    int64_t bytes;
    bool ended;
} arrival;

typedef struct tempi_coll_request {
    tempi_node_comm *node;
    uint64_t channel, call;
    uintptr_t request;    /* the program's */
    tempi_record *record; /* of that */
    MPI_Request inner;    /* the generalized one */
    tempi_blocks in;      /* with `ops` of its own */
    arrival *arrivals;    /* NULL: nothing was started */
    int narrivals, left;
    int error;
    tempi_kept_call *kept; /* NULL: it is used once */
    struct tempi_coll_request *next;
} tempi_coll_request;

/* A message that came before its request was started. */
typedef struct tempi_unmatched {
    int source;
    tempi_post *post;
    struct tempi_unmatched *next;
} tempi_unmatched;

/* Guards what is received, and the lists. */
static struct {
    tempi_lock lock;
    tempi_node_comm *nodes; /* with requests that are not complete */
} active;

/* ---- completing ------------------------------------------------------------------------------ */

/* A communicator that was freed has no handle. */
static MPI_Comm comm_of(const tempi_node_comm *node)
{
    return node->handle == MPI_COMM_NULL ? MPI_COMM_SELF : node->handle;
}

/* What one start has made. */
static void end_round(tempi_coll_request *r)
{
    if (!r->in.ops)
        return;
    tempi_blocks_close(&r->in);
    free(r->in.ops);
    free(r->arrivals);
    r->in.ops = NULL;
    r->arrivals = NULL;
}

static void leave(tempi_coll_request *r)
{
    tempi_coll_request **at = &r->node->requests;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
}

/* All has come. Its error is raised when the program completes it. Another thread may do so, and
 * free it, in the last call. */
static void complete(tempi_coll_request *r)
{
    tempi_record *record = r->record;
    record->comm = tempi_handle(comm_of(r->node));
    record->error = r->error;
    r->in.comm = comm_of(r->node);
    const int rc = tempi_blocks_unpack(&r->in); /* raises it */
    if (rc != MPI_SUCCESS) {
        record->error = rc;
        record->error_reported = true;
    }
    leave(r);
    tempi_pending_add(-1);
    tempi_lib.Grequest_complete(r->inner);
}

/* ---- receiving ------------------------------------------------------------------------------- */

static void unpack_all(const tempi_coll_request *r, const arrival *a, const char *packed,
                       int64_t bytes)
{
    for (int i = 0; i < a->n && bytes > 0; ++i) {
        const tempi_op *op = &r->in.ops[a->first + i];
        const int64_t n = op->n < bytes ? op->n : bytes;
        if (n > 0)
            tempi_block_unpack(op, 0, n, packed);
        packed += n;
        bytes -= n;
    }
}

static int receive(const tempi_coll_request *r, const arrival *a, tempi_post *post)
{
    if (post->bytes < 0)
        return MPI_ERR_OTHER;
    const char *packed = post->bytes > 0 ? tempi_post_data(r->node->posts, a->source, post) : "";
    if (!packed)
        return MPI_ERR_NO_MEM;
    const double start = post->timed ? tempi_copy_clock() : 0;
    unpack_all(r, a, packed, post->bytes < a->bytes ? post->bytes : a->bytes);
    if (post->timed)
        post->unpacking = tempi_copy_clock() - start;
    return post->bytes > a->bytes ? MPI_ERR_TRUNCATE : MPI_SUCCESS;
}

/* Whether the message belongs to it; then it was received. */
static bool takes(tempi_coll_request *r, int source, tempi_post *post)
{
    if (post->channel != r->channel || post->call != r->call)
        return false;
    for (int i = 0; i < r->narrivals; ++i) {
        arrival *a = &r->arrivals[i];
        if (a->source != source || a->ended)
            continue;
        const int rc = receive(r, a, post);
        if (r->error == MPI_SUCCESS)
            r->error = rc;
        a->ended = true;
        --r->left;
    }
    tempi_post_take(post);
    return true;
}

/* Reads what has come from that process. True: a request is complete, and the list has changed. */
static bool collect(tempi_node_comm *node, int source)
{
    while (tempi_post_waits(node->posts, source)) {
        /* First: a message that was read cannot be put back. */
        tempi_unmatched *later = malloc(sizeof *later);
        tempi_post *post = later ? tempi_post_next(node->posts, source) : NULL;
        tempi_coll_request *r = post ? node->requests : NULL;
        while (r && !takes(r, source, post))
            r = r->next;
        if (post && !r) {
            *later = (tempi_unmatched){source, post, node->unmatched};
            node->unmatched = later;
            continue;
        }
        free(later);
        if (!post)
            return false;
        if (r->left == 0) {
            complete(r);
            return true;
        }
    }
    return false;
}

/* A request was started: some of its messages may be there. */
static void match(tempi_coll_request *r)
{
    tempi_unmatched **at = &r->node->unmatched;
    while (*at) {
        tempi_unmatched *u = *at;
        if (!takes(r, u->source, u->post)) {
            at = &u->next;
            continue;
        }
        *at = u->next;
        free(u);
    }
}

static bool collect_any(tempi_node_comm *node)
{
    for (tempi_coll_request *r = node->requests; r; r = r->next)
        for (int i = 0; i < r->narrivals; ++i)
            if (!r->arrivals[i].ended && collect(node, r->arrivals[i].source))
                return true;
    return false;
}

/* Caller holds the lock. */
static void progress_all(void)
{
    for (tempi_node_comm **at = &active.nodes; *at;) {
        tempi_node_comm *node = *at;
        while (collect_any(node))
            ;
        if (node->requests) {
            at = &node->next_active;
            continue;
        }
        *at = node->next_active;
        tempi_node_comm_release(node);
    }
}

/* Without threads the lock is always free, and an error handler may call MPI: so callbacks do not
 * progress. */
static void leave_lock(void)
{
    --tempi_this_thread.posting;
    tempi_lock_release(&active.lock);
}

static void progress(void)
{
    if (!active.nodes || tempi_this_thread.posting || !tempi_lock_try(&active.lock))
        return;
    ++tempi_this_thread.posting;
    progress_all();
    leave_lock();
}

/* ---- waiting --------------------------------------------------------------------------------- */

static bool is_incomplete(int64_t n, const MPI_Request requests[])
{
    bool found = false;
    tempi_lock_acquire(&active.lock);
    for (tempi_node_comm *node = active.nodes; node; node = node->next_active)
        for (tempi_coll_request *r = node->requests; r && !found; r = r->next)
            for (int64_t i = 0; i < n && !found; ++i)
                found = tempi_handle(requests[i]) == r->request;
    tempi_lock_release(&active.lock);
    return found;
}

static void await(int64_t n, const MPI_Request requests[])
{
    MPI_Request waiting = MPI_REQUEST_NULL;
    progress();
    for (int64_t waited = 1; is_incomplete(n, requests); ++waited) {
        tempi_waiting_idle(&waiting, waited);
        progress();
    }
    tempi_waiting_end(&waiting);
}

/* ---- records --------------------------------------------------------------------------------- */

/* The one that stands in the place of a persistent request while that is active. */
static bool inner(const tempi_record *record, MPI_Request *out)
{
    const tempi_coll_request *r = record->collective;
    if (!record->active || !r->kept)
        return false;
    *out = r->inner;
    return true;
}

static bool arrived(tempi_record *record, const MPI_Status *status, tempi_op *out)
{
    (void)status, (void)out;
    record->settled = true;
    return false;
}

static void release(tempi_record *record)
{
    tempi_coll_request *r = record->collective;
    end_round(r);
    if (r->kept)
        tempi_node_comm_release(r->node);
    tempi_kept_call_free(r->kept);
    free(r);
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

static int find_arrivals(tempi_coll_request *r)
{
    const tempi_edges *edges = r->in.edges;
    const int size = r->node->size;
    r->arrivals = calloc((size_t)size, sizeof *r->arrivals);
    if (!r->arrivals)
        return tempi_blocks_no_memory(r->in.comm);
    r->narrivals = 0;
    for (int i = 1; i < size; ++i) {
        const int source = (r->node->rank - i + size) % size;
        arrival a = {
            .source = source, .first = edges->first[source], .n = tempi_edges_count(edges, source)};
        for (int k = 0; k < a.n; ++k)
            a.bytes += r->in.ops[a.first + k].n;
        if (a.bytes > 0)
            r->arrivals[r->narrivals++] = a;
    }
    r->left = r->narrivals;
    return MPI_SUCCESS;
}

static void pack_blocks(const tempi_op *ops, int n, bool far, char *packed)
{
    for (int i = 0; i < n; packed += ops[i++].n)
        if (ops[i].n > 0)
            (far ? tempi_block_pack_far : tempi_block_pack)(&ops[i], 0, ops[i].n, packed);
}

static void pack_message(const tempi_op *ops, int n, tempi_post *post, char *packed)
{
    const double start = post->timed ? tempi_copy_clock() : 0;
    pack_blocks(ops, n, post->far, packed);
    if (post->timed)
        post->packing = tempi_copy_clock() - start;
}

static int64_t bytes_to(const tempi_blocks *out, int to)
{
    int64_t bytes = 0;
    for (int i = out->edges->first[to]; i < out->edges->first[to + 1]; ++i)
        bytes += out->ops[i].n;
    return bytes;
}

/* False: no memory. `bytes` < 0: tells that process of an error. */
static bool post_to(const tempi_coll_request *r, const tempi_blocks *out, int to, int64_t bytes)
{
    void *packed;
    tempi_post *post = tempi_post_new(r->node->posts, to, bytes, &packed);
    if (!post)
        return false;
    if (bytes > 0)
        pack_message(out->ops + out->edges->first[to], tempi_edges_count(out->edges, to), post,
                     packed);
    post->channel = r->channel;
    post->call = r->call;
    tempi_post_send(r->node->posts, to);
    return true;
}

/* `failed`: not all blocks are described, so each process that may wait for one is told. */
static int send_all(const tempi_coll_request *r, const tempi_blocks *out, bool failed)
{
    bool good = true;
    for (int i = 1; i < r->node->size; ++i) {
        const int to = (r->node->rank + i) % r->node->size;
        if (tempi_edges_count(out->edges, to) == 0)
            continue;
        const int64_t bytes = failed ? -1 : bytes_to(out, to);
        if (bytes == 0 || post_to(r, out, to, bytes))
            continue;
        good = false;
        (void)post_to(r, out, to, -1);
    }
    return good || failed ? MPI_SUCCESS : tempi_blocks_no_memory(out->comm);
}

/* The blocks of this process itself. */
static int move_own(const tempi_coll_request *r, const tempi_blocks *out)
{
    const tempi_blocks *in = &r->in;
    const int rank = r->node->rank, nout = tempi_edges_count(out->edges, rank),
              nin = tempi_edges_count(in->edges, rank);
    if (tempi_exchange_self(out->ops + out->edges->first[rank], in->ops + in->edges->first[rank],
                            nout < nin ? nout : nin))
        return MPI_SUCCESS;
    tempi_lib.Comm_call_errhandler(in->comm, MPI_ERR_TRUNCATE);
    return MPI_ERR_TRUNCATE;
}

/* After an error the others are told. */
static int describe_and_send(tempi_coll_request *r, tempi_blocks *out)
{
    int rc = out->ops && r->in.ops ? tempi_blocks_describe(out) : tempi_blocks_no_memory(out->comm);
    if (rc == MPI_SUCCESS)
        rc = tempi_blocks_describe(&r->in);
    if (rc == MPI_SUCCESS)
        rc = find_arrivals(r);
    const int sent = send_all(r, out, rc != MPI_SUCCESS);
    rc = rc == MPI_SUCCESS ? sent : rc;
    return rc == MPI_SUCCESS ? move_own(r, out) : rc;
}

/* Puts it into the lists. Caller holds the lock. */
static void list(tempi_coll_request *r)
{
    tempi_node_comm *node = r->node;
    if (!node->requests) {
        tempi_node_comm_retain(node);
        node->next_active = active.nodes;
        active.nodes = node;
    }
    r->next = node->requests;
    node->requests = r;
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
    if (!r->kept && !track_once(r)) {
        tempi_proxy_end(&r->inner);
        return tempi_blocks_no_memory(r->in.comm);
    }
    tempi_lock_acquire(&active.lock);
    ++tempi_this_thread.posting;
    tempi_pending_add(1);
    list(r);
    match(r);
    if (r->left == 0)
        complete(r);
    progress_all();
    leave_lock();
    return MPI_SUCCESS;
}

/* One start. `out` and `in` as tempi_sides_of made them; on failure nothing of it is left. Caller
 * holds the communicator's lock: several threads may start persistent requests of it. */
static int start(tempi_coll_request *r, const tempi_collective *call, tempi_blocks *out,
                 const tempi_blocks *in)
{
    const double begun = tempi_trace_begin();
    out->ops = calloc((size_t)out->edges->n + 1, sizeof *out->ops);
    r->in = *in;
    r->in.outlives = !r->kept;
    r->in.ops = calloc((size_t)in->edges->n + 1, sizeof *r->in.ops);
    r->error = MPI_SUCCESS;
    int rc = describe_and_send(r, out);
    tempi_blocks_close(out);
    free(out->ops);
    if (rc == MPI_SUCCESS)
        rc = follow(r);
    if (rc != MPI_SUCCESS)
        end_round(r);
    tempi_stat_add(TEMPI_STAT_collectives, 1);
    tempi_stat_add(TEMPI_STAT_collective_bytes, out->bytes);
    tempi_trace_end(begun, "exchange", call->name, out->bytes);
    return rc;
}

static void use_hooks(void)
{
    tempi_progress_more = progress;
    tempi_await_more = await;
}

static bool start_once(const tempi_collective *call, const tempi_bounce_argument *buffers,
                       MPI_Request *request, int *result)
{
    tempi_blocks out, in;
    if (!tempi_sides_of(call, buffers, &out, &in))
        return false;
    tempi_coll_request *r = calloc(1, sizeof *r);
    if (!r || !record_of(r, &once_ops)) {
        free(r);
        *result = tempi_blocks_no_memory(call->comm);
        return true;
    }
    r->node = call->node;
    r->call = ++call->node->posted;
    *result = start(r, call, &out, &in);
    if (*result == MPI_SUCCESS)
        *request = r->inner;
    else
        release(r->record);
    return true;
}

bool tempi_coll_request_start(const tempi_collective *call, const tempi_bounce_argument *buffers,
                              MPI_Request *request, int *result)
{
    if (!request)
        return false;
    use_hooks();
    tempi_lock_acquire(&call->node->starting);
    const bool carried = start_once(call, buffers, request, result);
    tempi_lock_release(&call->node->starting);
    return carried;
}

/* ---- persistent requests --------------------------------------------------------------------- */

/* The processes have agreed at the beginning. */
static bool start_again(tempi_record *record, tempi_op *op, int *rc)
{
    tempi_coll_request *r = record->collective;
    tempi_collective *call = &r->kept->call;
    tempi_blocks out, in;
    (void)op;
    call->comm = comm_of(r->node);
    if (r->in.ops) { /* it is active: the program is wrong */
        tempi_lib.Comm_call_errhandler(call->comm, *rc = MPI_ERR_REQUEST);
        return false;
    }
    ++r->call;
    tempi_lock_acquire(&r->node->starting);
    *rc = tempi_sides_of(call, r->kept->buffers, &out, &in) ? start(r, call, &out, &in)
                                                            : MPI_ERR_ARG;
    tempi_lock_release(&r->node->starting);
    return false;
}

/* The library's request was started, too. */
static void rest(tempi_record *record)
{
    MPI_Request request = tempi_request_of(record->request);
    (void)tempi_lib.Wait(&request, MPI_STATUS_IGNORE);
    end_round(record->collective);
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

static int make_request(tempi_coll_request *r)
{
    static char nothing;
    tempi_kept_call *k = r->kept;
    const int rc = tempi_lib.Send_init(&nothing, 0, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_SELF,
                                       &k->request);
    if (rc != MPI_SUCCESS)
        return rc;
    r->request = tempi_handle(k->request);
    if (track(r))
        return MPI_SUCCESS;
    tempi_lib.Request_free(&k->request);
    return tempi_blocks_no_memory(k->call.comm);
}

bool tempi_coll_request_init(const tempi_collective *call, const tempi_bounce_argument *buffers,
                             MPI_Request *request, int *result)
{
    tempi_blocks out, in;
    if (!request || !tempi_sides_of(call, buffers, &out, &in) ||
        !tempi_collective_wanted(call, &out, &in) ||
        !tempi_node_comm_connect(call->comm, call->node, TEMPI_CONNECT_POSTS))
        return false;
    use_hooks();
    tempi_coll_request *r = calloc(1, sizeof *r);
    tempi_kept_call *k = r ? tempi_kept_call_make(call, buffers, &out, &in) : NULL;
    if (!k) {
        free(r);
        *result = tempi_blocks_no_memory(call->comm);
        return true;
    }
    r->node = call->node;
    r->kept = k;
    r->channel = ++call->node->channels;
    *result = make_request(r);
    if (*result == MPI_SUCCESS) {
        tempi_node_comm_retain(r->node);
        *request = k->request;
        return true;
    }
    tempi_kept_call_free(k);
    free(r);
    return true;
}

void tempi_coll_request_forget(tempi_node_comm *node)
{
    while (node->unmatched) {
        tempi_unmatched *u = node->unmatched;
        node->unmatched = u->next;
        free(u);
    }
}
