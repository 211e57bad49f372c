#include "shim/coll/node_comm.h"
#include "base/allocate.h"
#include "base/lock.h"
#include "shim/coll/coll_request.h"
#include "shim/coll/neighbor_order.h"
#include "shim/coll/node_memory.h"
#include "shim/coll/node_part.h"
#include "shim/comm/comm_attribute.h"
#include "shim/comm/peer_agree.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static struct {
    int keyval;
    tempi_lock lock; /* guards the lists */
    tempi_lock own;  /* held while that of MPI_COMM_SELF is looked up */
    tempi_node_comm *all;
    tempi_node_comm *free;
} comms = {.keyval = MPI_KEYVAL_INVALID};

int tempi_agreements_wanted;

tempi_node_comm *tempi_node_cache[1 << TEMPI_NODE_CACHE_BITS];

void *tempi_node_passing[TEMPI_QUIET_TABLE] = TEMPI_NOTHINGS;

/* ---- memory ---------------------------------------------------------------------------------- */

/* Stale entries of the cache are compared with it. */
static void set_handle(tempi_node_comm *node, MPI_Comm comm)
{
    __atomic_store_n(&node->handle, comm, __ATOMIC_RELEASE);
}

static tempi_node_comm *take_memory(void)
{
    tempi_lock_acquire(&comms.lock);
    tempi_node_comm *node = comms.free;
    if (node)
        comms.free = node->next_free;
    tempi_lock_release(&comms.lock);
    if (node) {
        tempi_node_comm *const next = node->next;
        const size_t kept = offsetof(tempi_node_comm, passes); /* its handle, which others read */
        memset((char *)node + kept, 0, sizeof *node - kept);
        node->next = next;
        return node;
    }
    node = tempi_allocate(sizeof *node);
    if (!node)
        return NULL;
    memset(node, 0, sizeof *node);
    set_handle(node, MPI_COMM_NULL);
    tempi_lock_acquire(&comms.lock);
    node->next = comms.all;
    comms.all = node;
    tempi_lock_release(&comms.lock);
    return node;
}

static void look_at_blocking_ones(const tempi_node_comm *node)
{
    void **place = &tempi_node_passing[tempi_node_passing_home(node->handle)];
    if (TEMPI_PUBLISHED(*place) == node)
        __atomic_store_n(place, tempi_nothing, __ATOMIC_RELAXED);
}

static void want(tempi_node_comm *node, bool posts, bool answers)
{
    const bool wants = posts || answers;
    if (node->wants != wants)
        __atomic_fetch_add(&tempi_agreements_wanted, wants ? 1 : -1, __ATOMIC_RELAXED);
    if (wants)
        look_at_blocking_ones(node);
    node->wants = wants;
    node->wants_posts = posts;
    node->wants_answers = answers;
}

void tempi_node_comm_want_posts(tempi_node_comm *node)
{
    if (!node->asked_posts && node->size > 1)
        want(node, true, node->wants_answers);
}

void tempi_node_comm_ask(tempi_node_comm *node, int function)
{
    node->asked[function] = true;
    want(node, node->wants_posts, true);
}

void tempi_node_comm_answered(tempi_node_comm *node)
{
    memset(node->asked, 0, sizeof node->asked);
    memset(node->needed, 0, sizeof node->needed);
    want(node, node->wants_posts, false);
}

/* Frees what it owns. `ends`: MPI has ended, and its communicators are gone. */
static void close_node(tempi_node_comm *node, bool ends)
{
    want(node, false, false);
    set_handle(node, MPI_COMM_NULL);
    tempi_node_part_close(node->part, !ends);
    tempi_node_part_close(node->alone, !ends);
    node->part = node->alone = NULL;
    tempi_edges_free(&node->all);
    tempi_edges_free(&node->none);
    tempi_edges_free(&node->one);
    tempi_edges_free(&node->out);
    tempi_edges_free(&node->in);
    const bool keeps = !ends && !node->failed && !node->unmatched;
    tempi_coll_request_forget(node);
    tempi_node_memory_close(node, keeps);
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
    set_handle(node, MPI_COMM_NULL);
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
    for (int i = 0; i < TEMPI_QUIET_TABLE; ++i)
        tempi_node_passing[i] = tempi_nothing;
    while (comms.all) {
        tempi_node_comm *node = comms.all;
        comms.all = node->next;
        close_node(node, true);
        free(node);
    }
    comms.free = NULL;
    tempi_node_memory_clear();
}

/* ---- setting up ------------------------------------------------------------------------------ */

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
        want(node, false, node->wants_answers);
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
        if (!node->to && !tempi_node_memory_connect(comm, node, what))
            node->together = false;
        return node->to != NULL;
    }
    if (!node->posts && !node->asked_posts) {
        node->asked_posts = true;
        want(node, false, node->wants_answers);
        (void)tempi_node_memory_connect(comm, node, what);
    }
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

/* If its processes are not all on this node each one packs for itself: then their order is no other
 * one's. */
static void place_inter(MPI_Comm comm, tempi_node_comm *node)
{
    const int own = node->size;
    bool first = true;
    if (tempi_lib.Comm_remote_size(comm, &node->peers) != MPI_SUCCESS)
        return;
    const bool all = own + node->peers <= TEMPI_SEGMENT_MEMBERS &&
                     tempi_peer_agree_inter(comm, &first);
    first |= !all;
    node->size += node->peers;
    node->rank += first ? 0 : node->peers;
    node->peers_begin = first ? own : 0;
    const bool memory = make_edges(node);
    node->together = memory && all;
    node->split = memory && !all;
}

/* Each process finds the same, of the grid and of the library. */
static void learn_order(MPI_Comm comm, tempi_node_comm *node)
{
    static const int functions[] = {TEMPI_FUNCTION_Neighbor_alltoall,
                                    TEMPI_FUNCTION_Neighbor_alltoallv,
                                    TEMPI_FUNCTION_Neighbor_alltoallw};
    for (unsigned i = 0; i < sizeof functions / sizeof functions[0]; ++i) {
        const int f = functions[i];
        node->corrected[f] = tempi_neighbor_order_is_wrong_on(comm, f);
        node->misordered[f] = node->corrected[f] && tempi_neighbor_order_is_wrong_in_blocking(f);
    }
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
    learn_order(comm, node);
    if (tempi_lib.Comm_set_attr(comm, key(), node) != MPI_SUCCESS) {
        give_back(node);
        return NULL;
    }
    set_handle(node, comm);
    return node;
}

static tempi_node_comm *find(MPI_Comm comm)
{
    void *value = NULL;
    int found = 0;
    if (tempi_lib.Comm_get_attr(comm, key(), &value, &found) != MPI_SUCCESS)
        return NULL;
    return found ? value : make(comm);
}

/* MPI_COMM_SELF is a part of several communicators, so threads may come together. */
tempi_node_comm *tempi_node_comm_lookup(MPI_Comm comm)
{
    const bool shared = comm == MPI_COMM_SELF;
    if (comm == MPI_COMM_NULL || (key() == MPI_KEYVAL_INVALID && !start()))
        return NULL;
    if (shared)
        tempi_lock_acquire(&comms.own);
    tempi_node_comm *node = find(comm);
    if (shared)
        tempi_lock_release(&comms.own);
    if (node)
        __atomic_store_n(&tempi_node_cache[tempi_node_home(comm)], node, __ATOMIC_RELEASE);
    return node;
}
