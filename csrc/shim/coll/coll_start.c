#include "shim/coll/coll_start.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/stats.h"
#include "base/trace.h"
#include "shim/coll/block_exchange.h"
#include "shim/coll/coll_posts.h"
#include "shim/coll/request_pool.h"
#include "shim/coll/split_call.h"

#include <stdlib.h>

/* For the operations of both sides, and what may arrive from each process. False: there is none. */
static bool take_memory(tempi_coll_request *r)
{
    const size_t nout = (size_t)r->out.edges->n + 1, nin = (size_t)r->in.edges->n + 1,
                 ops = (nout + nin) * sizeof *r->out.ops,
                 bytes = ops + (size_t)r->node->size * sizeof *r->arrivals;
    r->out.ops = r->in.ops = NULL;
    if (r->room < bytes) {
        free(r->memory);
        r->memory = malloc(bytes);
        r->room = r->memory ? bytes : 0;
        if (!r->memory)
            return false;
    }
    r->out.ops = r->memory;
    r->in.ops = r->out.ops + nout;
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
        const tempi_arrival a = {.source = source,
                                 .first = edges->first[source],
                                 .n = tempi_edges_count(edges, source),
                                 .bytes = tempi_blocks_bytes_with(&r->in, source)};
        if (a.bytes > 0)
            r->arrivals[r->narrivals++] = a;
    }
    r->left = r->narrivals;
}

static int move_own(tempi_coll_request *r)
{
    const bool timed = r->in.bytes > tempi_post_whole_most();
    const double start = timed ? tempi_clock() : 0;
    const bool fits = tempi_block_move_own(r->node, &r->out, &r->in);
    r->busy = timed ? tempi_clock() - start : 0;
    if (r->node->posts) /* there are others */
        tempi_post_took_own(r->node->posts, r->busy);
    if (fits)
        return MPI_SUCCESS;
    tempi_lib.Comm_call_errhandler(r->out.comm, MPI_ERR_TRUNCATE);
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
 * them. */
static bool replaces(const tempi_coll_request *r)
{
    return r->out.buffer == r->in.buffer && r->out.entry < 0;
}

static int describe_out(tempi_coll_request *r)
{
    return take_memory(r) ? tempi_blocks_describe(&r->out) : tempi_blocks_no_memory(r->out.comm);
}

static int describe_in(tempi_coll_request *r)
{
    const int rc = tempi_blocks_describe(&r->in);
    if (rc == MPI_SUCCESS)
        find_arrivals(r);
    return rc;
}

/* `rc`: of the description. On an error the processes of this node are notified, and blocks for
 * other nodes are still sent. */
static int send_all(tempi_coll_request *r, const tempi_device_offers *described, int rc)
{
    const int passed = pass_on(r);
    rc = rc == MPI_SUCCESS ? passed : rc;
    const bool failed = rc != MPI_SUCCESS;
    const tempi_coll_sending sending = {.out = &r->out,
                                        .in = &r->in,
                                        .failed = failed,
                                        .offers = replaces(r) || failed ? NULL : &r->offers,
                                        .host = r->out.nstaged == 0, /* not in staging buffers */
                                        .described = described};
    const int sent = tempi_coll_posts_send(r->node, r->name, &sending);
    return rc == MPI_SUCCESS ? sent : rc;
}

/* Blocks that are not divided are sent before anything else is looked at: the others wait for them,
 * and how they are sent does not depend on what comes. */
static bool sends_first(const tempi_coll_request *r)
{
    return !tempi_memory_mixed && !r->remote && r->out.bytes <= tempi_post_whole_most();
}

static int describe_and_send(tempi_coll_request *r)
{
    int rc = describe_out(r);
    if (rc == MPI_SUCCESS && sends_first(r)) {
        rc = send_all(r, NULL, rc);
        return rc == MPI_SUCCESS ? describe_in(r) : rc;
    }
    tempi_device_offers described = {0};
    if (rc == MPI_SUCCESS)
        rc = describe_in(r);
    if (rc == MPI_SUCCESS)
        rc = tempi_device_posts_begin(&r->moves, r->node, &r->out, &r->in, &described);
    rc = send_all(r, &described, rc);
    tempi_device_offers_close(&described);
    return rc;
}

static bool track_once(tempi_coll_request *r)
{
    r->request = r->record->request = tempi_handle(r->inner);
    r->record->active = true;
    return tempi_records_put(r->record);
}

/* Gets the generalized request, and receives what is there. */
static int follow(tempi_coll_request *r)
{
    const int rc = tempi_coll_request_get_handle(r);
    if (rc != MPI_SUCCESS)
        return rc;
    if (!r->persistent && !track_once(r))
        return tempi_blocks_no_memory(r->in.comm);
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
static void own_edges(tempi_coll_request *r, const tempi_collective *call)
{
    const tempi_edges *shared = &r->node->one;
    tempi_persistent_call *k = r->persistent;
    if (!k || r->remote || (r->out.edges != shared && r->in.edges != shared) ||
        (!k->one.first && !tempi_edges_none(r->node->size, &k->one)))
        return;
    tempi_edges_one(&k->one, r->node->size, r->node->peers_begin + call->root);
    r->out.edges = r->out.edges == shared ? &k->one : r->out.edges;
    r->in.edges = r->in.edges == shared ? &k->one : r->in.edges;
}

/* Whether the next start has the same operations: of blocks in host memory, and of edges that do
 * not depend on the root of other calls. */
static bool keeps(const tempi_coll_request *r, const tempi_collective *call)
{
    const tempi_edges *shared = &r->node->one;
    const bool fixed = call->pattern == TEMPI_PATTERN_ALL ||
                       call->pattern == TEMPI_PATTERN_NEIGHBORS ||
                       (!r->remote && r->out.edges != shared && r->in.edges != shared);
    return r->persistent && fixed && !tempi_memory_mixed && !tempi_config.check &&
           r->out.nstaged == 0 && r->in.nstaged == 0;
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

static void begin_round(tempi_coll_request *r)
{
    r->error = MPI_SUCCESS;
    r->active = true;
    r->completed = false;
}

/* The operations of what is sent stay if they are needed. */
static void end_sending(tempi_coll_request *r)
{
    const bool offered = tempi_coll_offers_left(&r->offers);
    if (offered && !r->persistent)
        tempi_blocks_keep(&r->out);
    if (offered || r->kept)
        return;
    tempi_blocks_close(&r->out);
    r->out.ops = NULL;
}

int tempi_coll_start(tempi_coll_request *r, const tempi_collective *call)
{
    const double begun = tempi_trace_begin();
    r->in.outlives = !r->persistent;
    r->in.late = r->out.late = !r->persistent;
    r->in.stays = r->out.stays = r->out.buffer != r->in.buffer;
    begin_round(r);
    own_edges(r, call);
    int rc = describe_and_send(r);
    r->kept = rc == MPI_SUCCESS && keeps(r, call);
    if (rc == MPI_SUCCESS)
        rc = move_own(r);
    end_sending(r);
    const int64_t bytes = r->out.bytes;
    rc = follow_up(r, call, rc);
    tempi_stat_add(TEMPI_STAT_collective_bytes, bytes);
    tempi_trace_end(begun, "exchange", call->name, bytes);
    return rc;
}

int tempi_coll_start_kept(tempi_coll_request *r, const tempi_collective *call)
{
    const double begun = tempi_trace_begin();
    r->in.comm = r->out.comm = call->comm;
    begin_round(r);
    for (int i = 0; i < r->narrivals; ++i) {
        tempi_arrival *a = &r->arrivals[i];
        a->post = NULL;
        a->came = 0;
        a->unpacking = a->looked = a->waited = a->meanwhile = 0;
        a->claimed = a->ended = false;
    }
    r->left = r->narrivals;
    const int64_t bytes = r->out.bytes;
    int rc = send_all(r, NULL, MPI_SUCCESS);
    if (rc == MPI_SUCCESS)
        rc = move_own(r);
    rc = follow_up(r, call, rc);
    tempi_stat_add(TEMPI_STAT_collective_bytes, bytes);
    tempi_trace_end(begun, "exchange", call->name, bytes);
    return rc;
}
