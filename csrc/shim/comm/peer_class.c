#include "shim/comm/peer_class.h"
#include "base/config.h"
#include "base/lock.h"
#include "shim/comm/comm_attribute.h"
#include "shim/comm/peer_world.h"
#include "tempi.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The ranks of a communicator (of its remote group, if it has two) that are on this node.
 * Recycled, and freed only at the end: another thread may still read an entry that was replaced.
 * It may then use the wrong class of a rank, which costs only time. */
typedef struct tempi_node_ranks node_ranks;

struct tempi_node_ranks {
    struct tempi_node_ranks *next; /* of all entries */
    struct tempi_node_ranks *free; /* of the unused ones */
    unsigned seen;                 /* entries in the node registry when this was made */
    int capacity;                  /* number of ranks that fit into `bits` */
    int size;
    int self;        /* this process's own rank; -1: in the other group */
    int farthest;    /* TEMPI_PEER_* */
    uint16_t *lines; /* node registry index of each rank on this node; NULL: too many */
    unsigned char bits[];
};

static struct {
    bool started;
    int keyval;
    _Atomic(const node_ranks *) of_world; /* MPI_COMM_WORLD's, for a fast look-up */
    tempi_lock lock;                      /* guards the two lists */
    node_ranks *all;
    node_ranks *free;
} classes = {.keyval = MPI_KEYVAL_INVALID};

/* Larger communicators cache no locality. */
enum { MOST_LINES = 8192 };

static node_ranks *new_memory(int capacity)
{
    const size_t bits = (size_t)capacity / 8,
                 lines = capacity <= MOST_LINES ? (size_t)capacity * sizeof(uint16_t) : 0;
    node_ranks *made = malloc(sizeof *made + bits + lines);
    if (!made)
        return NULL;
    made->capacity = capacity;
    made->lines = lines > 0 ? (uint16_t *)(void *)(made->bits + bits) : NULL;
    return made;
}

static node_ranks *take_memory(int size)
{
    node_ranks *found = NULL;
    tempi_lock_acquire(&classes.lock);
    for (node_ranks **at = &classes.free; *at && !found; at = &(*at)->free)
        if ((*at)->capacity >= size) {
            found = *at;
            *at = found->free;
            break;
        }
    tempi_lock_release(&classes.lock);
    const int capacity = (size + 511) / 512 * 512;
    if (!found && (found = new_memory(capacity))) {
        tempi_lock_acquire(&classes.lock);
        found->next = classes.all;
        classes.all = found;
        tempi_lock_release(&classes.lock);
    }
    if (!found)
        return NULL;
    found->size = size;
    found->self = -1;
    memset(found->bits, 0, (size_t)found->capacity / 8);
    return found;
}

static void give_back(node_ranks *entry)
{
    tempi_lock_acquire(&classes.lock);
    entry->free = classes.free;
    classes.free = entry;
    tempi_lock_release(&classes.lock);
}

static int on_comm_deleted(MPI_Comm comm, int key, void *value, void *state)
{
    (void)comm, (void)key, (void)state;
    if (atomic_load_explicit(&classes.of_world, memory_order_relaxed) == value)
        atomic_store_explicit(&classes.of_world, NULL, memory_order_release);
    give_back(value);
    return MPI_SUCCESS;
}

static unsigned seen_now(void)
{
    return tempi_peers.registry && !tempi_peers.one_node
               ? tempi_node_registry_count(tempi_peers.registry)
               : 0;
}

/* The i-th rank of the world on this node; -1: there are no more. */
static int world_rank(unsigned i, unsigned seen)
{
    if (tempi_peers.one_node)
        return (int)i < tempi_peers.size ? (int)i : -1;
    return i < seen ? tempi_node_registry_rank(tempi_peers.registry, i) : -1;
}

/* Translates from the few ranks of the node to those of the communicator and not in reverse:
 * Open MPI compares each rank of one group with each of the other. */
static void mark(node_ranks *entry, MPI_Group group)
{
    int ranks[64], there[64], n, here = 0;
    unsigned i = 0;
    do {
        int rank;
        for (n = 0; n < 64 && (rank = world_rank(i, entry->seen)) >= 0; ++n, ++i)
            ranks[n] = rank;
        if (n == 0 || tempi_lib.Group_translate_ranks(tempi_peers.world, n, ranks, group, there) !=
                          MPI_SUCCESS)
            break;
        for (int k = 0; k < n; ++k)
            if (there[k] >= 0 && there[k] < entry->size) {
                if (entry->lines)
                    entry->lines[there[k]] = (uint16_t)(i - (unsigned)n + (unsigned)k);
                here += !(entry->bits[there[k] / 8] >> there[k] % 8 & 1);
                entry->bits[there[k] / 8] |= (unsigned char)(1u << there[k] % 8);
            }
    } while (n == 64);
    entry->farthest = here == entry->size ? TEMPI_PEER_NODE : TEMPI_PEER_OTHER;
}

static bool comparable(MPI_Comm comm)
{
    if (!tempi_peers.has_world)
        return false;
    return !tempi_peers.mixed || (comm == MPI_COMM_WORLD && !tempi_peers.by_session);
}

static node_ranks *describe(MPI_Comm comm, MPI_Group group, bool inter)
{
    int size;
    if (tempi_lib.Group_size(group, &size) != MPI_SUCCESS)
        return NULL;
    node_ranks *entry = take_memory(size);
    if (!entry)
        return NULL;
    entry->seen = seen_now();
    entry->farthest = TEMPI_PEER_OTHER;
    if (!inter && tempi_lib.Comm_rank(comm, &entry->self) != MPI_SUCCESS)
        entry->self = -1;
    if (comparable(comm))
        mark(entry, group);
    if (size == 1 && entry->self == 0)
        entry->farthest = TEMPI_PEER_SELF;
    return entry;
}

static const node_ranks *learn(MPI_Comm comm)
{
    int inter;
    MPI_Group group;
    if (tempi_lib.Comm_test_inter(comm, &inter) != MPI_SUCCESS ||
        (inter ? tempi_lib.Comm_remote_group : tempi_lib.Comm_group)(comm, &group) != MPI_SUCCESS)
        return NULL;
    node_ranks *entry = describe(comm, group, inter != 0);
    tempi_lib.Group_free(&group);
    if (entry && tempi_lib.Comm_set_attr(comm, classes.keyval, entry) != MPI_SUCCESS) {
        give_back(entry);
        entry = NULL;
    }
    if (comm == MPI_COMM_WORLD)
        atomic_store_explicit(&classes.of_world, entry, memory_order_release);
    return entry;
}

static bool current(const node_ranks *entry)
{
    return entry->seen == seen_now() || !tempi_peers.has_world;
}

static const node_ranks *node_ranks_of(MPI_Comm comm)
{
    void *value = NULL;
    int found = 0;
    const node_ranks *world = atomic_load_explicit(&classes.of_world, memory_order_acquire);
    if (world && comm == MPI_COMM_WORLD && current(world))
        return world;
    if (tempi_lib.Comm_get_attr(comm, classes.keyval, &value, &found) != MPI_SUCCESS)
        return NULL;
    if (found && current(value))
        return value;
    return learn(comm);
}

static bool is_other_llc(const node_ranks *entry, int peer, int64_t bytes)
{
    if (tempi_config.locality != TEMPI_LOCALITY_AUTO)
        return tempi_config.locality == TEMPI_LOCALITY_OTHER_LLC;
    return tempi_peers.locality && entry->lines &&
           tempi_locality_is_other_llc(tempi_peers.locality, entry->lines[peer], bytes);
}

static bool is_here(const node_ranks *entry, int peer)
{
    return peer >= 0 && peer < entry->size && (entry->bits[peer / 8] >> peer % 8 & 1) != 0;
}

int tempi_peer_class(MPI_Comm comm, int peer, int64_t bytes)
{
    const int unknown = tempi_peers.one_node ? TEMPI_PEER_NODE : TEMPI_PEER_OTHER;
    if (comm == MPI_COMM_SELF) /* contains only this rank, whatever the launcher says */
        return TEMPI_PEER_SELF;
    if (!classes.started || comm == MPI_COMM_NULL)
        return unknown;
    const node_ranks *entry = node_ranks_of(comm);
    if (!entry)
        return unknown;
    if (peer < 0 || peer >= entry->size)
        return entry->farthest;
    if (peer == entry->self)
        return TEMPI_PEER_SELF;
    if (!is_here(entry, peer))
        return TEMPI_PEER_OTHER;
    return is_other_llc(entry, peer, bytes) ? TEMPI_PEER_OTHER_LLC : TEMPI_PEER_NODE;
}

int tempi_peer_probe(uintptr_t comm, int rank)
{
    const MPI_Comm which = tempi_comm_of(comm);
    if (!classes.started)
        return TEMPI_ERR_NO_MPI;
    if (which == MPI_COMM_NULL)
        return TEMPI_ERR_ARG;
    const node_ranks *entry = node_ranks_of(which);
    if (entry && tempi_peers.locality && entry->lines && is_here(entry, rank))
        tempi_locality_probe(tempi_peers.locality, entry->lines[rank]);
    return TEMPI_OK;
}

int tempi_peer_report(uintptr_t comm, int rank, int *out)
{
    const MPI_Comm which = tempi_comm_of(comm);
    if (!classes.started)
        return TEMPI_ERR_NO_MPI;
    if (which == MPI_COMM_NULL)
        return TEMPI_ERR_ARG;
    *out = tempi_peer_class(which, rank, 0);
    return TEMPI_OK;
}

void tempi_peer_class_start(void)
{
    if (!classes.started && tempi_peers.started)
        classes.started = tempi_lib.Comm_create_keyval(tempi_comm_attribute_not_copied,
                                                       on_comm_deleted, &classes.keyval,
                                                       NULL) == MPI_SUCCESS;
}

void tempi_peer_class_stop(void)
{
    atomic_store_explicit(&classes.of_world, NULL, memory_order_release);
    if (classes.started)
        tempi_lib.Comm_free_keyval(&classes.keyval);
    classes.started = false;
}

void tempi_peer_class_clear(void)
{
    tempi_lock_acquire(&classes.lock);
    while (classes.all) {
        node_ranks *entry = classes.all;
        classes.all = entry->next;
        free(entry);
    }
    classes.free = NULL;
    tempi_lock_release(&classes.lock);
}
