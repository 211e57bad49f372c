/* Setting up, the first time:
 *
 *   1. Each process finds whether all processes are on this node and run tempi: the same answer
 *      everywhere, without a message (peer_class.h).
 *   2. Rank 0 creates the shared memory and broadcasts its name; the others map it.
 *   3. All of them tell whether they could. If one could not, the library does all calls.
 *
 * Both messages are collectives of the library on the program's communicator, in a call in which
 * all of its processes are.
 */
#include "shim/coll/node_comm.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/stats.h"
#include "shim/comm/comm_attribute.h"
#include "shim/comm/peer_class.h"

#include <stdlib.h>
#include <string.h>

static struct {
    int keyval;
    tempi_lock lock; /* guards the lists */
    tempi_node_comm *all;
    tempi_node_comm *free;
} comms = {.keyval = MPI_KEYVAL_INVALID};

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

/* Frees what it owns. */
static void close_node(tempi_node_comm *node)
{
    node->handle = MPI_COMM_NULL;
    tempi_segment_close(&node->segment);
    tempi_edges_free(&node->all);
    tempi_edges_free(&node->none);
    tempi_edges_free(&node->one);
    tempi_edges_free(&node->out);
    tempi_edges_free(&node->in);
    free(node->to);
    node->to = NULL;
}

static void give_back(tempi_node_comm *node)
{
    close_node(node);
    tempi_lock_acquire(&comms.lock);
    node->next_free = comms.free;
    comms.free = node;
    tempi_lock_release(&comms.lock);
}

/* ---- the attribute --------------------------------------------------------------------------- */

static int on_comm_deleted(MPI_Comm comm, int key, void *value, void *state)
{
    (void)comm, (void)key, (void)state;
    give_back(value);
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
        close_node(node);
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

/* The same in all processes. */
static bool map(MPI_Comm comm, tempi_node_comm *node, bool ready)
{
    char name[TEMPI_SEGMENT_NAME] = "";
    int mine, all = 0;
    if (node->rank == 0)
        node->segment = tempi_segment_create(TEMPI_SEGMENT_FOLDER, node->size, name);
    if (tempi_lib.Bcast(name, sizeof name, MPI_CHAR, 0, comm) != MPI_SUCCESS)
        return false;
    if (node->rank != 0)
        node->segment = tempi_segment_open(TEMPI_SEGMENT_FOLDER, node->size, name);
    mine = ready && node->segment.memory != NULL;
    if (mine)
        tempi_single_copy_offer(tempi_segment_probe(&node->segment, node->rank));
    const int rc = tempi_lib.Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, comm);
    if (node->rank == 0 && node->segment.memory)
        tempi_segment_unlink(TEMPI_SEGMENT_FOLDER, name);
    return rc == MPI_SUCCESS && all;
}

bool tempi_node_comm_connect(MPI_Comm comm, tempi_node_comm *node)
{
    if (node->to || node->size == 1)
        return true;
    const bool ready = take_ends(node);
    if (map(comm, node, ready)) {
        connect(node);
        return true;
    }
    node->together = false;
    tempi_segment_close(&node->segment);
    tempi_stat_add(TEMPI_STAT_refused_shared_memory, 1);
    if (node->rank == 0)
        TEMPI_WARN_ONCE("no shared memory for a communicator of %d ranks: its collectives are left "
                        "to the library (is %s full?)",
                        node->size, TEMPI_SEGMENT_FOLDER);
    return false;
}

static tempi_node_comm *make(MPI_Comm comm)
{
    int inter = 1;
    tempi_node_comm *node = take_memory();
    if (!node)
        return NULL;
    if (tempi_lib.Comm_test_inter(comm, &inter) == MPI_SUCCESS && !inter &&
        tempi_lib.Comm_size(comm, &node->size) == MPI_SUCCESS &&
        tempi_lib.Comm_rank(comm, &node->rank) == MPI_SUCCESS)
        node->together = (node->size == 1 || (node->size <= TEMPI_SEGMENT_MEMBERS &&
                                              tempi_peer_agree(comm, node->size))) &&
                         tempi_edges_all(node->size, &node->all) &&
                         tempi_edges_none(node->size, &node->none) &&
                         tempi_edges_none(node->size, &node->one);
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
