#include "shim/comm/peer_class.h"
#include "base/config.h"
#include "base/lock.h"
#include "base/log.h"
#include "tempi.h"
#include "topology/launcher.h"
#include "topology/locality.h"
#include "topology/node_registry.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Which ranks of a communicator (of its remote group, if it has two) are on this node. Recycled and
 * freed only at the end: a second thread may still look at one that the first has replaced, and
 * then errs about where a rank is, which costs time and no more. */
typedef struct nearby {
    struct nearby *next; /* of all */
    struct nearby *free; /* of those not in use */
    unsigned seen;       /* entries on the board when this was made */
    int room;            /* ranks that `bits` is large enough for */
    int size;
    int self;        /* this process's own rank; -1: it is in the other group */
    int farthest;    /* TEMPI_PEER_* */
    uint16_t *lines; /* of its ranks on this node, by their order on the board; NULL: too many */
    unsigned char bits[];
} nearby;

static struct {
    bool started;
    bool mixed; /* a second epoch of MPI began: its groups must not be compared with the first one's
                 */
    int keyval;
    bool has_world;
    MPI_Group world; /* its processes, in the order of the launcher's ranks */
    int size;
    bool one_node;
    tempi_node_registry *board;
    tempi_locality *distances; /* of the ranks on this node, in the order of world_rank() */
    bool by_session;
#ifdef TEMPI_ACTS_IN_Session_init
    MPI_Session session; /* that `world` comes from, if by_session */
#endif
    _Atomic(const nearby *) of_world; /* MPI_COMM_WORLD's, to be found without asking the library */
    tempi_lock lock;                  /* of the two lists */
    nearby *all;
    nearby *free;
} peers = {.keyval = MPI_KEYVAL_INVALID};

/* ---- one communicator ------------------------------------------------------------------------ */

/* Of larger communicators the distances are not kept. */
enum { MOST_LINES = 8192 };

static nearby *new_memory(int room)
{
    const size_t bits = (size_t)room / 8,
                 lines = room <= MOST_LINES ? (size_t)room * sizeof(uint16_t) : 0;
    nearby *made = malloc(sizeof *made + bits + lines);
    if (!made)
        return NULL;
    made->room = room;
    made->lines = lines > 0 ? (uint16_t *)(void *)(made->bits + bits) : NULL;
    return made;
}

static nearby *take_memory(int size)
{
    nearby *found = NULL;
    tempi_lock_acquire(&peers.lock);
    for (nearby **at = &peers.free; *at && !found; at = &(*at)->free)
        if ((*at)->room >= size) {
            found = *at;
            *at = found->free;
            break;
        }
    tempi_lock_release(&peers.lock);
    const int room = (size + 511) / 512 * 512;
    if (!found && (found = new_memory(room))) {
        tempi_lock_acquire(&peers.lock);
        found->next = peers.all;
        peers.all = found;
        tempi_lock_release(&peers.lock);
    }
    if (!found)
        return NULL;
    found->size = size;
    found->self = -1;
    memset(found->bits, 0, (size_t)found->room / 8);
    return found;
}

static void give_back(nearby *entry)
{
    tempi_lock_acquire(&peers.lock);
    entry->free = peers.free;
    peers.free = entry;
    tempi_lock_release(&peers.lock);
}

/* (The library's own functions of this kind are symbols on some, and we must have none undefined.)
 */
static int copy_nothing(MPI_Comm comm, int key, void *state, void *in, void *out, int *flag)
{
    (void)comm, (void)key, (void)state, (void)in, (void)out;
    *flag = 0;
    return MPI_SUCCESS;
}

static int on_comm_deleted(MPI_Comm comm, int key, void *value, void *state)
{
    (void)comm, (void)key, (void)state;
    if (atomic_load_explicit(&peers.of_world, memory_order_relaxed) == value)
        atomic_store_explicit(&peers.of_world, NULL, memory_order_release);
    give_back(value);
    return MPI_SUCCESS;
}

static unsigned seen_now(void)
{
    return peers.board && !peers.one_node ? tempi_node_registry_count(peers.board) : 0;
}

/* The i-th rank of the world on this node; -1: there are no more. */
static int world_rank(unsigned i, unsigned seen)
{
    if (peers.one_node)
        return (int)i < peers.size ? (int)i : -1;
    return i < seen ? tempi_node_registry_rank(peers.board, i) : -1;
}

/* From the few ranks of the node to those of the communicator, not the other way round: Open MPI
 * compares each of the one group with each of the other. */
static void mark(nearby *entry, MPI_Group group)
{
    int ranks[64], there[64], n, near = 0;
    unsigned i = 0;
    do {
        int rank;
        for (n = 0; n < 64 && (rank = world_rank(i, entry->seen)) >= 0; ++n, ++i)
            ranks[n] = rank;
        if (n == 0 ||
            tempi_lib.Group_translate_ranks(peers.world, n, ranks, group, there) != MPI_SUCCESS)
            break;
        for (int k = 0; k < n; ++k)
            if (there[k] >= 0 && there[k] < entry->size) {
                if (entry->lines)
                    entry->lines[there[k]] = (uint16_t)(i - (unsigned)n + (unsigned)k);
                near += !(entry->bits[there[k] / 8] >> there[k] % 8 & 1);
                entry->bits[there[k] / 8] |= (unsigned char)(1u << there[k] % 8);
            }
    } while (n == 64);
    entry->farthest = near == entry->size ? TEMPI_PEER_NODE : TEMPI_PEER_OTHER;
}

static bool comparable(MPI_Comm comm)
{
    if (!peers.has_world)
        return false;
    return !peers.mixed || (comm == MPI_COMM_WORLD && !peers.by_session);
}

static nearby *describe(MPI_Comm comm, MPI_Group group, bool inter)
{
    int size;
    if (tempi_lib.Group_size(group, &size) != MPI_SUCCESS)
        return NULL;
    nearby *entry = take_memory(size);
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

static const nearby *learn(MPI_Comm comm)
{
    int inter;
    MPI_Group group;
    if (tempi_lib.Comm_test_inter(comm, &inter) != MPI_SUCCESS ||
        (inter ? tempi_lib.Comm_remote_group : tempi_lib.Comm_group)(comm, &group) != MPI_SUCCESS)
        return NULL;
    nearby *entry = describe(comm, group, inter != 0);
    tempi_lib.Group_free(&group);
    if (entry && tempi_lib.Comm_set_attr(comm, peers.keyval, entry) != MPI_SUCCESS) {
        give_back(entry);
        entry = NULL;
    }
    if (comm == MPI_COMM_WORLD)
        atomic_store_explicit(&peers.of_world, entry, memory_order_release);
    return entry;
}

static bool current(const nearby *entry)
{
    return entry->seen == seen_now() || !peers.has_world;
}

static const nearby *nearby_of(MPI_Comm comm)
{
    void *value = NULL;
    int found = 0;
    const nearby *world = atomic_load_explicit(&peers.of_world, memory_order_acquire);
    if (world && comm == MPI_COMM_WORLD && current(world))
        return world;
    if (tempi_lib.Comm_get_attr(comm, peers.keyval, &value, &found) != MPI_SUCCESS)
        return NULL;
    if (found && current(value))
        return value;
    return learn(comm);
}

static bool is_far(const nearby *entry, int peer, int64_t bytes)
{
    if (tempi_config.locality != TEMPI_LOCALITY_AUTO)
        return tempi_config.locality == TEMPI_LOCALITY_OTHER_LLC;
    return peers.distances && entry->lines &&
           tempi_locality_far(peers.distances, entry->lines[peer], bytes);
}

static bool is_here(const nearby *entry, int peer)
{
    return peer >= 0 && peer < entry->size && (entry->bits[peer / 8] >> peer % 8 & 1) != 0;
}

int tempi_peer_class(MPI_Comm comm, int peer, int64_t bytes)
{
    const int unknown = peers.one_node ? TEMPI_PEER_NODE : TEMPI_PEER_OTHER;
    if (comm == MPI_COMM_SELF) /* which is only this rank, whatever the launcher tells */
        return TEMPI_PEER_SELF;
    if (!peers.started || comm == MPI_COMM_NULL)
        return unknown;
    const nearby *entry = nearby_of(comm);
    if (!entry)
        return unknown;
    if (peer < 0 || peer >= entry->size)
        return entry->farthest;
    if (peer == entry->self)
        return TEMPI_PEER_SELF;
    if (!is_here(entry, peer))
        return TEMPI_PEER_OTHER;
    return is_far(entry, peer, bytes) ? TEMPI_PEER_FAR : TEMPI_PEER_NODE;
}

int tempi_peer_probe(uintptr_t comm, int rank)
{
    const MPI_Comm which = tempi_comm_of(comm);
    if (!peers.started)
        return TEMPI_ERR_NO_MPI;
    if (which == MPI_COMM_NULL)
        return TEMPI_ERR_ARG;
    const nearby *entry = nearby_of(which);
    if (entry && peers.distances && entry->lines && is_here(entry, rank))
        tempi_locality_look(peers.distances, entry->lines[rank]);
    return TEMPI_OK;
}

int tempi_peer_tell(uintptr_t comm, int rank, int *out)
{
    const MPI_Comm which = tempi_comm_of(comm);
    if (!peers.started)
        return TEMPI_ERR_NO_MPI;
    if (which == MPI_COMM_NULL)
        return TEMPI_ERR_ARG;
    *out = tempi_peer_class(which, rank, 0);
    return TEMPI_OK;
}

/* ---- one epoch of MPI ------------------------------------------------------------------------ */

static void start(void)
{
    tempi_job job;
    int rank;
    if (tempi_lib.Group_size(peers.world, &peers.size) != MPI_SUCCESS ||
        tempi_lib.Group_rank(peers.world, &rank) != MPI_SUCCESS || rank < 0 ||
        tempi_lib.Comm_create_keyval(copy_nothing, on_comm_deleted, &peers.keyval, NULL) !=
            MPI_SUCCESS)
        return;
    tempi_launcher_ask(rank, peers.size, &job);
    peers.one_node = peers.size == 1 || job.local >= peers.size;
    const bool looks = tempi_config.locality == TEMPI_LOCALITY_AUTO && job.local > 1;
    if (job.name[0] && (!peers.one_node || looks))
        peers.board = tempi_node_registry_join(TEMPI_NODE_REGISTRY_FOLDER, job.name, rank,
                                               job.local);
    if (looks && peers.board && tempi_node_registry_lines(peers.board))
        peers.distances = tempi_locality_open(
            tempi_node_registry_lines(peers.board),
            peers.one_node ? rank : tempi_node_registry_own(peers.board), job.local);
    if (!peers.one_node && !peers.board)
        TEMPI_LOG(
            TEMPI_LOG_INFO,
            "which ranks share this node is not known: every other rank counts as on another");
    peers.started = true;
}

/* What is known of communicators stays; of new ones nothing is. */
static void forget_world(void)
{
    atomic_store_explicit(&peers.of_world, NULL, memory_order_release);
    if (peers.has_world)
        tempi_lib.Group_free(&peers.world);
    peers.has_world = false;
}

void tempi_peer_world_began(void)
{
    if (peers.started) {
        peers.mixed = true;
        return;
    }
    const MPI_Comm world = MPI_COMM_WORLD;
    peers.has_world = tempi_lib.Comm_group(world, &peers.world) == MPI_SUCCESS;
    if (peers.has_world)
        start();
}

#ifdef TEMPI_ACTS_IN_Session_init
void tempi_peer_session_began(MPI_Session session)
{
    if (peers.started) {
        peers.mixed = true;
        return;
    }
    if (!tempi_lib.Group_from_session_pset ||
        tempi_lib.Group_from_session_pset(session, "mpi://WORLD", &peers.world) != MPI_SUCCESS)
        return;
    peers.has_world = peers.by_session = true;
    peers.session = session;
    start();
}

void tempi_peer_session_ends(MPI_Session session)
{
    if (peers.by_session && peers.session == session)
        forget_world();
}
#endif

void tempi_peer_world_ends(void)
{
    if (!peers.by_session)
        forget_world();
}

void tempi_peer_stop(void)
{
    forget_world();
    if (!peers.started)
        return;
    peers.started = peers.mixed = peers.by_session = peers.one_node = false;
    tempi_lib.Comm_free_keyval(&peers.keyval);
    tempi_locality_close(peers.distances);
    peers.distances = NULL;
    tempi_node_registry_leave(peers.board);
    peers.board = NULL;
}

void tempi_peer_clear(void)
{
    tempi_lock_acquire(&peers.lock);
    while (peers.all) {
        nearby *entry = peers.all;
        peers.all = entry->next;
        free(entry);
    }
    peers.free = NULL;
    tempi_lock_release(&peers.lock);
}
