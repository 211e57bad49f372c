/* Setting up, the first time:
 *
 *   1. Each process finds whether all processes are on this node and run tempi: the same answer
 *      everywhere, without a message (peer_class.h).
 *   2. Rank 0 creates the shared memory and broadcasts its name; the others map it.
 *   3. All of them tell whether they could. If one could not, the library does the calls that need
 *      it.
 *
 * Both messages are collectives of the library on the program's communicator (comm_agree.h).
 */
#include "shim/coll/node_comm.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/stats.h"
#include "shim/coll/coll_request.h"
#include "shim/coll/comm_agree.h"
#include "shim/coll/node_part.h"
#include "shim/comm/comm_attribute.h"
#include "shim/comm/peer_class.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static struct {
    int keyval;
    tempi_lock lock; /* guards the lists */
    tempi_node_comm *all;
    tempi_node_comm *free;
    int posts; /* open files */
} comms = {.keyval = MPI_KEYVAL_INVALID};

int tempi_posts_wanted;

tempi_node_comm *tempi_node_cache[1 << TEMPI_NODE_CACHE_BITS];

/* ---- memory ---------------------------------------------------------------------------------- */

static tempi_node_comm *take_memory(void)
{
    tempi_lock_acquire(&comms.lock);
    tempi_node_comm *node = comms.free;
    if (node)
        comms.free = node->next_free;
    tempi_lock_release(&comms.lock);
    if (node) {
        tempi_node_comm *const next = node->next;
        memset(node, 0, sizeof *node);
        node->next = next;
        node->handle = MPI_COMM_NULL;
        return node;
    }
    node = calloc(1, sizeof *node);
    if (!node)
        return NULL;
    node->handle = MPI_COMM_NULL;
    tempi_lock_acquire(&comms.lock);
    node->next = comms.all;
    comms.all = node;
    tempi_lock_release(&comms.lock);
    return node;
}

static void want(tempi_node_comm *node, bool wants)
{
    if (node->wants_posts != wants)
        __atomic_fetch_add(&tempi_posts_wanted, wants ? 1 : -1, __ATOMIC_RELAXED);
    node->wants_posts = wants;
}

void tempi_node_comm_want_posts(tempi_node_comm *node)
{
    if (!node->asked_posts)
        want(node, true);
}

/* Frees what it owns. `ends`: MPI has ended, and its communicators are gone. */
static void close_node(tempi_node_comm *node, bool ends)
{
    want(node, false);
    node->handle = MPI_COMM_NULL;
    tempi_node_part_close(node->part, !ends);
    node->part = NULL;
    tempi_segment_close(&node->segment);
    tempi_edges_free(&node->all);
    tempi_edges_free(&node->none);
    tempi_edges_free(&node->one);
    tempi_edges_free(&node->out);
    tempi_edges_free(&node->in);
    tempi_coll_request_forget(node);
    tempi_post_close(node->posts);
    if (node->posts)
        __atomic_fetch_sub(&comms.posts, 1, __ATOMIC_RELAXED);
    node->posts = NULL;
    free(node->to);
    node->to = NULL;
}

static void give_back(tempi_node_comm *node)
{
    close_node(node, false);
    tempi_lock_acquire(&comms.lock);
    node->next_free = comms.free;
    comms.free = node;
    tempi_lock_release(&comms.lock);
}

/* ---- the attribute --------------------------------------------------------------------------- */

void tempi_node_comm_retain(tempi_node_comm *node)
{
    tempi_lock_acquire(&comms.lock);
    ++node->holders;
    tempi_lock_release(&comms.lock);
}

/* Whether it is to be given back now. */
static bool leaves(tempi_node_comm *node, bool request)
{
    tempi_lock_acquire(&comms.lock);
    node->holders -= request;
    node->deleted |= !request;
    const bool last = node->holders == 0 && node->deleted;
    tempi_lock_release(&comms.lock);
    return last;
}

void tempi_node_comm_release(tempi_node_comm *node)
{
    if (leaves(node, true))
        give_back(node);
}

static int on_comm_deleted(MPI_Comm comm, int key, void *value, void *state)
{
    tempi_node_comm *node = value;
    (void)comm, (void)key, (void)state;
    node->handle = MPI_COMM_NULL;
    if (leaves(node, false))
        give_back(node);
    return MPI_SUCCESS;
}

static int key(void)
{
    return __atomic_load_n(&comms.keyval, __ATOMIC_ACQUIRE);
}

/* Threads may come together. */
static bool start(void)
{
    int made;
    tempi_lock_acquire(&comms.lock);
    if (key() == MPI_KEYVAL_INVALID &&
        tempi_lib.Comm_create_keyval(tempi_comm_attribute_not_copied, on_comm_deleted, &made,
                                     NULL) == MPI_SUCCESS)
        __atomic_store_n(&comms.keyval, made, __ATOMIC_RELEASE);
    tempi_lock_release(&comms.lock);
    return key() != MPI_KEYVAL_INVALID;
}

void tempi_node_comm_stop(void)
{
    if (comms.keyval != MPI_KEYVAL_INVALID)
        tempi_lib.Comm_free_keyval(&comms.keyval);
    comms.keyval = MPI_KEYVAL_INVALID;
}

/* Callbacks of the predefined communicators come late, or never. */
void tempi_node_comm_clear(void)
{
    memset(tempi_node_cache, 0, sizeof tempi_node_cache);
    while (comms.all) {
        tempi_node_comm *node = comms.all;
        comms.all = node->next;
        close_node(node, true);
        free(node);
    }
    comms.free = NULL;
}

/* ---- setting up ------------------------------------------------------------------------------ */

static bool take_ends(tempi_node_comm *node)
{
    const size_t n = (size_t)node->size;
    node->to = calloc(2 * n, sizeof *node->to);
    node->from = node->to ? node->to + n : NULL;
    return node->to != NULL;
}

static void connect(tempi_node_comm *node)
{
    for (int i = 0; i < node->size; ++i) {
        node->to[i] = tempi_segment_end(&node->segment, node->rank, i);
        node->from[i] = tempi_segment_end(&node->segment, i, node->rank);
        if (i != node->rank && tempi_single_copy_works(tempi_segment_probe(&node->segment, i)))
            __atomic_store_n(&node->from[i].ring->reads, 1, __ATOMIC_RELAXED);
    }
}

static bool map_rings(MPI_Comm comm, tempi_node_comm *node, bool ready)
{
    char name[TEMPI_SEGMENT_NAME] = "";
    if (node->rank == 0)
        node->segment = tempi_segment_create(TEMPI_SEGMENT_FOLDER, node->size, name);
    if (!tempi_comm_broadcast(comm, node, name, TEMPI_SEGMENT_NAME))
        return false;
    if (node->rank != 0)
        node->segment = tempi_segment_open(TEMPI_SEGMENT_FOLDER, node->size, name);
    const bool mine = ready && node->segment.memory != NULL;
    if (mine)
        tempi_single_copy_offer(tempi_segment_probe(&node->segment, node->rank));
    const bool all = tempi_comm_all(comm, node, mine);
    if (node->rank == 0 && node->segment.memory)
        tempi_segment_unlink(TEMPI_SEGMENT_FOLDER, name);
    return all;
}

static bool connect_rings(MPI_Comm comm, tempi_node_comm *node)
{
    const bool ready = take_ends(node);
    if (map_rings(comm, node, ready)) {
        connect(node);
        return true;
    }
    node->together = false;
    tempi_segment_close(&node->segment);
    free(node->to);
    node->to = NULL;
    return false;
}

/* Whether the process can spare one more open file. */
static bool spares_file(void)
{
    enum { SHARE = 4, MOST = 1024 };
    struct rlimit limit;
    const int posts = __atomic_load_n(&comms.posts, __ATOMIC_RELAXED);
    return posts < MOST && getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
           (rlim_t)posts < limit.rlim_cur / SHARE;
}

static bool connect_posts(MPI_Comm comm, tempi_node_comm *node)
{
    char name[TEMPI_SEGMENT_NAME] = "";
    const bool made = node->rank == 0 && tempi_post_create(TEMPI_SEGMENT_FOLDER, node->size, name);
    node->asked_posts = true;
    want(node, false);
    if (!tempi_comm_broadcast(comm, node, name, TEMPI_SEGMENT_NAME))
        return false;
    if (spares_file())
        node->posts = tempi_post_open(TEMPI_SEGMENT_FOLDER, node->size, node->rank, name);
    if (node->posts)
        __atomic_fetch_add(&comms.posts, 1, __ATOMIC_RELAXED);
    const bool all = tempi_comm_all(comm, node, node->posts != NULL);
    if (all)
        tempi_post_connect(node->posts);
    if (made)
        tempi_segment_unlink(TEMPI_SEGMENT_FOLDER, name);
    if (!all && node->posts) {
        tempi_post_close(node->posts);
        node->posts = NULL;
        __atomic_fetch_sub(&comms.posts, 1, __ATOMIC_RELAXED);
    }
    return all;
}

static void warn(const tempi_node_comm *node)
{
    tempi_stat_add(TEMPI_STAT_refused_shared_memory, 1);
    if (node->rank == 0)
        TEMPI_WARN_ONCE("no shared memory for a communicator of %d ranks: its collectives are left "
                        "to the library (is %s full?)",
                        node->size, TEMPI_SEGMENT_FOLDER);
}

static void warn_of_posts(const tempi_node_comm *node)
{
    tempi_stat_add(TEMPI_STAT_refused_shared_memory, 1);
    if (node->rank == 0)
        TEMPI_WARN_ONCE("no shared memory for the nonblocking and persistent collectives of a "
                        "communicator of %d ranks: they are left to the library (many open "
                        "files, or is %s full?)",
                        node->size, TEMPI_SEGMENT_FOLDER);
}

bool tempi_node_comm_has_posts(const tempi_node_comm *node)
{
    if (node->split)
        return node->part && tempi_node_comm_has_posts(node->part->node);
    return node->posts || node->size == 1;
}

/* The part of it that is on this node. */
static bool connect_part(MPI_Comm comm, tempi_node_comm *node, tempi_connection what)
{
    tempi_node_part *part = tempi_node_part_of(comm, node);
    if (what == TEMPI_CONNECT_POSTS) {
        node->asked_posts = true;
        want(node, false);
    }
    return part && tempi_node_comm_connect(part->comm, part->node, what);
}

bool tempi_node_comm_connect(MPI_Comm comm, tempi_node_comm *node, tempi_connection what)
{
    if (node->size == 1)
        return true;
    if (node->split)
        return connect_part(comm, node, what);
    if (what == TEMPI_CONNECT_RINGS) {
        if (!node->to && !connect_rings(comm, node))
            warn(node);
        return node->to != NULL;
    }
    if (!node->posts && !node->asked_posts && !connect_posts(comm, node))
        warn_of_posts(node);
    return node->posts != NULL;
}

static bool make_edges(tempi_node_comm *node)
{
    return tempi_edges_all(node->size, node->peers_begin, node->peers, &node->all) &&
           tempi_edges_none(node->size, &node->none) && tempi_edges_none(node->size, &node->one);
}

static void place(MPI_Comm comm, tempi_node_comm *node)
{
    node->peers = node->size;
    const bool memory = make_edges(node);
    const bool all = node->size == 1 ||
                     (node->size <= TEMPI_SEGMENT_MEMBERS && tempi_peer_agree(comm, node->size));
    node->together = memory && all;
    node->split = memory && !all;
}

/* The library does all calls on it, if its processes are not all on this node. */
static void place_inter(MPI_Comm comm, tempi_node_comm *node)
{
    const int own = node->size;
    bool first;
    if (tempi_lib.Comm_remote_size(comm, &node->peers) != MPI_SUCCESS ||
        own + node->peers > TEMPI_SEGMENT_MEMBERS || !tempi_peer_agree_inter(comm, &first))
        return;
    node->size += node->peers;
    node->rank += first ? 0 : node->peers;
    node->peers_begin = first ? own : 0;
    node->together = make_edges(node);
}

static tempi_node_comm *make(MPI_Comm comm)
{
    int inter = 1;
    tempi_node_comm *node = take_memory();
    if (!node)
        return NULL;
    if (tempi_lib.Comm_test_inter(comm, &inter) == MPI_SUCCESS &&
        tempi_lib.Comm_size(comm, &node->size) == MPI_SUCCESS &&
        tempi_lib.Comm_rank(comm, &node->rank) == MPI_SUCCESS)
        (inter ? place_inter : place)(comm, node);
    if (tempi_lib.Comm_set_attr(comm, key(), node) != MPI_SUCCESS) {
        give_back(node);
        return NULL;
    }
    node->handle = comm;
    return node;
}

tempi_node_comm *tempi_node_comm_lookup(MPI_Comm comm)
{
    void *value = NULL;
    int found = 0;
    if (comm == MPI_COMM_NULL || (key() == MPI_KEYVAL_INVALID && !start()))
        return NULL;
    if (tempi_lib.Comm_get_attr(comm, key(), &value, &found) != MPI_SUCCESS)
        return NULL;
    tempi_node_comm *node = found ? value : make(comm);
    if (node)
        __atomic_store_n(&tempi_node_cache[tempi_node_home(comm)], node, __ATOMIC_RELEASE);
    return node;
}
