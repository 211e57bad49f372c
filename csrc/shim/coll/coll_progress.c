#include "base/clock.h"
#include "base/thread.h"
#include "exchange/block_bytes.h"
#include "shim/coll/coll_request.h"
#include "shim/coll/coll_round.h"
#include "shim/request/deferred_sends.h"
#include "shim/request/record_ops.h"
#include "shim/request/request.h"
#include "shim/request/waiting.h"

#include <sched.h>
#include <stdlib.h>

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
MPI_Comm tempi_coll_comm_of(const tempi_node_comm *node)
{
    return node->handle == MPI_COMM_NULL ? MPI_COMM_SELF : node->handle;
}

/* What one start has made, but for what the next one needs. */
void tempi_coll_end_round(tempi_coll_request *r)
{
    if (!r->active)
        return;
    r->active = false;
    tempi_device_moves_close(&r->moves);
    r->offers.n = r->offers.tails.n = 0;
    r->offers.since = r->offers.tails.waited = 0;
    r->offers.tails.error = MPI_SUCCESS;
    if (r->kept)
        return;
    tempi_blocks_close(&r->in);
    if (r->out.ops)
        tempi_blocks_close(&r->out);
    r->in.ops = r->out.ops = NULL;
}

static void leave(tempi_coll_request *r)
{
    tempi_coll_request **at = &r->node->requests;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
}

bool tempi_coll_has_ended(const tempi_coll_request *r)
{
    return __atomic_load_n(&r->completed, __ATOMIC_ACQUIRE) && !r->handed_over;
}

/* The lock for a short look, also in an error handler that is called under it. */
static void look(void)
{
    if (!tempi_this_thread.collecting)
        tempi_lock_acquire(&active.lock);
}

static void end_look(void)
{
    if (!tempi_this_thread.collecting)
        tempi_lock_release(&active.lock);
}

void tempi_coll_hand_over(tempi_coll_request *r)
{
    look();
    const bool first = !r->handed_over;
    r->handed_over = true;
    if (first && r->completed)
        tempi_lib.Grequest_complete(r->inner);
    end_look();
}

/* All has come. Its error is raised when the program completes it. Another thread may do so, and
 * free it, once it is said to be complete. */
static void complete(tempi_coll_request *r, bool listed)
{
    tempi_record *record = r->record;
    if (r->error == MPI_SUCCESS)
        r->error = r->offers.tails.error;
    record->comm = tempi_handle(tempi_coll_comm_of(r->owner));
    record->error = r->error;
    r->in.comm = tempi_coll_comm_of(r->owner);
    int rc = tempi_blocks_unpack(&r->in); /* raises it */
    const int remote = r->remote ? tempi_remote_end(r->remote, r->passed_error) : MPI_SUCCESS;
    rc = rc == MPI_SUCCESS ? remote : rc;
    if (rc != MPI_SUCCESS) {
        record->error = rc;
        record->error_reported = true;
    }
    r->node->failed |= rc != MPI_SUCCESS || r->error != MPI_SUCCESS;
    if (listed) {
        leave(r);
        tempi_pending_add(-1);
    }
    const bool handed_over = r->handed_over;
    MPI_Request inner = r->inner;
    __atomic_store_n(&r->completed, true, __ATOMIC_RELEASE);
    if (handed_over)
        tempi_lib.Grequest_complete(inner);
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Those bytes of the message, or what there is room for. */
static void unpack_part(const tempi_coll_request *r, const tempi_arrival *a, int64_t offset,
                        int64_t bytes, const char *packed)
{
    for (int i = 0; i < a->n && bytes > 0; offset -= r->in.ops[a->first + i++].n) {
        const tempi_op *op = &r->in.ops[a->first + i];
        const int64_t left = op->n - offset, n = left < bytes ? left : bytes;
        if (n <= 0)
            continue;
        tempi_block_unpack(op, offset, n, packed);
        packed += n;
        bytes -= n;
        offset += n;
    }
}

/* The host stores them: blocks in device memory need other memory. */
static int stage(tempi_coll_request *r, const tempi_arrival *a)
{
    r->in.comm = tempi_coll_comm_of(r->owner);
    return tempi_blocks_stage(&r->in, a->first, a->n);
}

static int unpack(const tempi_coll_request *r, const tempi_arrival *a, tempi_post *post)
{
    if (post->bytes < 0)
        return MPI_ERR_OTHER;
    const char *packed = post->bytes > 0 ? tempi_post_data(r->node->posts, a->source, post) : "";
    if (!packed)
        return MPI_ERR_NO_MEM;
    unpack_part(r, a, post->room == 0 ? 0 : post->offset, post->bytes, packed);
    return post->whole > a->bytes ? MPI_ERR_TRUNCATE : MPI_SUCCESS;
}

/* The sender learns from it: of what is streamed from all that this process has done meanwhile. */
static void tell_time(tempi_coll_request *r, tempi_arrival *a, tempi_post *post, double seconds)
{
    a->unpacking += seconds;
    r->busy += seconds;
    if (post->course.timed)
        post->unpacking = post->course.streamed ? r->busy : a->unpacking;
}

enum { PATIENCES = 2 }; /* times as long as packing takes */
/* Seconds between two looks: what is longer is not all waiting. */
static const double GAP = 50e-6;

/* How long the process has moved bytes of the request, so far. */
static double own_work(const tempi_coll_request *r)
{
    return r->busy + r->offers.storing;
}

/* It waits for the sender to store it. If that one does not begin, this process reads it: the
 * sender may do anything else. */
static void await_store(const tempi_coll_request *r, tempi_arrival *a, tempi_post *post)
{
    if (a->looked == 0)
        return;
    const double now = tempi_clock(), work = own_work(r) - a->worked, gap = now - a->looked - work;
    a->waited += gap > GAP ? GAP : gap > 0 ? gap : 0;
    a->looked = now;
    a->meanwhile += work;
    a->worked += work;
    if (a->waited > PATIENCES * post->patience && tempi_post_is_invited(post))
        (void)tempi_post_uninvite(post);
}

/* Seconds that it has waited beyond the longer one of the sender's storing and its own work. */
static double wait_of(const tempi_arrival *a, const tempi_post *post, bool stored)
{
    const double storing = stored ? post->packing : 0,
                 longer = storing > a->meanwhile ? storing : a->meanwhile,
                 wait = a->waited + a->meanwhile - longer;
    return wait > 0 ? wait : 0;
}

/* Reads what is offered, or tells the sender where to store it. False: then, and where it was
 * refused, it is to be looked at again. */
static bool read_offered(tempi_coll_request *r, tempi_arrival *a, tempi_post *post)
{
    const tempi_op *blocks = r->in.ops + a->first;
    if (a->looked > 0 || !tempi_post_invite_to(r->node->posts, a->source, post, blocks, a->n))
        return tempi_post_read(r->node->posts, a->source, post, blocks, a->n);
    a->looked = tempi_clock();
    a->worked = own_work(r);
    return false;
}

static void receive(tempi_coll_request *r, tempi_arrival *a, tempi_post *post)
{
    if (tempi_post_is_described(post)) {
        a->post = post;
        return;
    }
    await_store(r, a, post);
    const bool timed = post->course.timed || post->course.streamed;
    const double start = timed ? tempi_clock() : 0;
    const tempi_post_kind kind = tempi_post_claim(post, false);
    int rc = MPI_SUCCESS;
    a->post = kind == TEMPI_POST_LATER ? post : NULL;
    if (kind != TEMPI_POST_LATER)
        rc = stage(r, a);
    if (kind == TEMPI_POST_OFFERED && rc == MPI_SUCCESS && !read_offered(r, a, post))
        a->post = post;
    if (a->post)
        return;
    if (kind == TEMPI_POST_PACKED && rc == MPI_SUCCESS)
        rc = unpack(r, a, post);
    if (r->error == MPI_SUCCESS)
        r->error = rc;
    a->came += post->bytes;
    a->ended = post->bytes < 0 || a->came >= post->whole;
    r->left -= a->ended;
    a->unpacking += wait_of(a, post, kind == TEMPI_POST_IN_PLACE);
    a->looked = a->waited = a->meanwhile = 0;
    if (timed)
        tell_time(r, a, post, tempi_clock() - start);
    tempi_post_take(r->node->posts, a->source, post);
}

static bool owns(const tempi_coll_request *r, const tempi_post *post)
{
    return post->channel == r->name.channel && post->call == r->name.call;
}

/* A message of its own. */
static void take(tempi_coll_request *r, int source, tempi_post *post)
{
    for (int i = 0; i < r->narrivals; ++i) {
        tempi_arrival *a = &r->arrivals[i];
        if (a->source != source || a->ended)
            continue;
        if (a->post) /* an earlier part, which was withdrawn before this one was sent */
            receive(r, a, a->post);
        if (a->post || a->ended)
            continue;
        receive(r, a, post);
        return;
    }
    if (tempi_post_claim(post, true) != TEMPI_POST_LATER)
        tempi_post_take(r->node->posts, source, post);
}

/* Whether there is nothing to wait for. */
static bool is_over(const tempi_coll_request *r)
{
    return r->left == 0 && !r->passing && !tempi_coll_offers_left(&r->offers) && r->moves.n == 0;
}

/* NULL: it was not started yet. */
static tempi_coll_request *owner_of(const tempi_node_comm *node, const tempi_post *post)
{
    tempi_coll_request *r = node->requests;
    while (r && !owns(r, post))
        r = r->next;
    return r;
}

/* False: no memory; it can be read again. */
static bool keep_for_later(tempi_node_comm *node, int source, tempi_post *post)
{
    tempi_unmatched *later = malloc(sizeof *later);
    if (!later)
        return false;
    *later = (tempi_unmatched){source, post, node->unmatched};
    node->unmatched = later;
    tempi_post_pass(node->posts, source);
    return true;
}

/* Reads what has come from that process. True: a request is complete, and the list has changed. */
static bool collect(tempi_node_comm *node, int source)
{
    enum { MOST = 64 }; /* a sender of parts adds others as fast as they are read */
    for (int i = 0; i < MOST; ++i) {
        tempi_post *post = tempi_post_next(node->posts, source);
        tempi_coll_request *r = post ? owner_of(node, post) : NULL;
        if (!post || (!r && !keep_for_later(node, source, post)))
            return false;
        if (!r)
            continue;
        tempi_post_pass(node->posts, source);
        take(r, source, post);
        if (is_over(r)) {
            complete(r, true);
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
        if (!owns(r, u->post)) {
            at = &u->next;
            continue;
        }
        take(r, u->source, u->post);
        *at = u->next;
        free(u);
    }
}

/* Whether the library has passed on all it had to. */
static bool is_passed(tempi_coll_request *r)
{
    int flag = 0;
    if (!r->passing)
        return true;
    const int rc = tempi_lib.Test(&r->passed, &flag, MPI_STATUS_IGNORE);
    if (!flag && rc == MPI_SUCCESS)
        return false;
    r->passing = false;
    r->passed_error = rc;
    return true;
}

/* Looks at what the others have not read. What they cannot read they wait for, while this process
 * may wait for them. */
static void look_at_offers(tempi_coll_request *r, bool idle)
{
    if (r->offers.n == 0)
        return;
    r->out.comm = tempi_coll_comm_of(r->owner);
    const int rc = tempi_coll_offers_look(r->node, r->owner, &r->out, &r->offers, idle);
    if (r->error == MPI_SUCCESS)
        r->error = rc;
}

static void send_tails(tempi_coll_request *r)
{
    if (r->offers.tails.n > 0)
        tempi_post_tails_look(&r->offers.tails, r->node, r->owner, r->name, &r->out);
}

/* As collect(). */
static bool complete_any(tempi_node_comm *node)
{
    for (tempi_coll_request *r = node->requests; r; r = r->next) {
        tempi_device_posts_look(r);
        send_tails(r);
        const bool came = r->left == 0 && r->moves.n == 0;
        look_at_offers(r, came && is_passed(r));
        if (is_over(r)) {
            complete(r, true);
            return true;
        }
    }
    return false;
}

static bool collect_any(tempi_node_comm *node)
{
    for (tempi_coll_request *r = node->requests; r; r = r->next)
        for (int i = 0; i < r->narrivals; ++i) {
            tempi_arrival *a = &r->arrivals[i];
            if (a->ended)
                continue;
            if (a->post)
                receive(r, a, a->post);
            if (collect(node, a->source))
                return true;
        }
    return false;
}

/* Caller holds the lock. */
static void progress_all(void)
{
    for (tempi_node_comm **at = &active.nodes; *at;) {
        tempi_node_comm *node = *at;
        while (collect_any(node) || complete_any(node))
            ;
        if (node->requests) {
            at = &node->next_active;
            continue;
        }
        __atomic_store_n(at, node->next_active, __ATOMIC_RELAXED);
        tempi_node_comm_release(node);
    }
}

/* Without threads the lock is always free, and an error handler may call MPI: so callbacks do not
 * progress. */
static void have_lock(void)
{
    ++tempi_this_thread.posting;
    tempi_this_thread.collecting = 1;
}

static void leave_lock(void)
{
    tempi_this_thread.collecting = 0;
    --tempi_this_thread.posting;
    tempi_lock_release(&active.lock);
}

/* Without the lock. */
static bool any_active(void)
{
    return __atomic_load_n(&active.nodes, __ATOMIC_RELAXED) != NULL;
}

static void progress(void)
{
    if (!any_active() || tempi_this_thread.posting || !tempi_lock_try(&active.lock))
        return;
    have_lock();
    progress_all();
    leave_lock();
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* How many of the requests are collectives that are not complete. */
static int64_t incomplete(int64_t n, const MPI_Request requests[])
{
    int64_t found = 0;
    look();
    for (tempi_node_comm *node = active.nodes; node; node = node->next_active)
        for (tempi_coll_request *r = node->requests; r; r = r->next)
            for (int64_t i = 0; i < n; ++i)
                found += tempi_handle(requests[i]) == r->request;
    end_look();
    return found;
}

/* One attempt. False: another thread starts a request. */
static bool settle_all(void)
{
    bool good = true;
    tempi_lock_acquire(&active.lock);
    have_lock();
    for (tempi_node_comm *node = active.nodes; node; node = node->next_active)
        for (tempi_coll_request *r = node->requests; r; r = r->next) {
            if (!tempi_coll_offers_left(&r->offers))
                continue;
            r->out.comm = tempi_coll_comm_of(r->owner);
            good &= tempi_coll_offers_settle(r->node, r->owner, r->name, &r->out, &r->offers);
        }
    leave_lock();
    return good;
}

/* A process that waits in the library packs nothing that others refuse. */
static void settle(void)
{
    while (!tempi_this_thread.posting && any_active() && !settle_all())
        sched_yield();
}

static void await(int64_t n, const MPI_Request requests[])
{
    MPI_Request waiting = MPI_REQUEST_NULL;
    bool others = false;
    const int64_t ours = incomplete(n, requests);
    for (int64_t i = 0; ours < n && i < n; ++i)
        others |= requests[i] != MPI_REQUEST_NULL;
    progress();
    for (int64_t waited = 1; incomplete(n, requests) > 0; ++waited) {
        tempi_waiting_idle(&waiting, waited);
        progress();
    }
    tempi_waiting_end(&waiting);
    if (others)
        settle();
}

/* ---- starting -------------------------------------------------------------------------------- */

/* Puts it into the lists. Caller holds the lock. */
static void list(tempi_coll_request *r)
{
    tempi_node_comm *node = r->node;
    if (!node->requests) {
        tempi_node_comm_retain(node);
        node->next_active = active.nodes;
        __atomic_store_n(&active.nodes, node, __ATOMIC_RELAXED);
    }
    r->next = node->requests;
    node->requests = r;
}

void tempi_coll_follow(tempi_coll_request *r)
{
    tempi_lock_acquire(&active.lock);
    have_lock();
    const bool waits = !is_over(r);
    if (waits) {
        tempi_pending_add(1);
        list(r);
        match(r);
    }
    if (is_over(r))
        complete(r, waits);
    progress_all();
    leave_lock();
}

void tempi_coll_use_hooks(void)
{
    static const tempi_more more = {progress, await, settle};
    tempi_set_more(&more);
}

void tempi_coll_request_forget(tempi_node_comm *node)
{
    while (node->unmatched) {
        tempi_unmatched *u = node->unmatched;
        node->unmatched = u->next;
        free(u);
    }
}
