#include "shim/comm/peer_class.h"
#include "base/config.h"
#include "base/lock.h"
#include "base/log.h"
#include "choose/message_trials.h"
#include "shim/comm/comm_attribute.h"
#include "tempi.h"
#include "topology/launcher.h"
#include "topology/locality.h"
#include "topology/node_registry.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The ranks of a communicator (of its remote group, if it has two) that are on this node.
 * Recycled, and freed only at the end: another thread may still read an entry that was replaced.
 * It may then use the wrong class of a rank, which costs only time. */
typedef struct node_ranks {
    struct node_ranks *next; /* of all entries */
    struct node_ranks *free; /* of the unused ones */
    unsigned seen;           /* entries in the node registry when this was made */
    int capacity;            /* number of ranks that fit into `bits` */
    int size;
    int self;        /* this process's own rank; -1: in the other group */
    int farthest;    /* TEMPI_PEER_* */
    uint16_t *lines; /* node registry index of each rank on this node; NULL: too many */
    unsigned char bits[];
} node_ranks;

static struct {
    bool started;
    bool mixed; /* after a second epoch of MPI, whose groups must not be compared */
    int keyval;
    bool has_world;
    MPI_Group world; /* processes of this world, in the order of the launcher's ranks */
    int size;
    bool one_node;
    tempi_node_registry *registry;
    bool refused;             /* it could not be joined */
    tempi_job job;            /* by which this process registered before MPI_Init */
    int registered;           /* its rank there */
    bool acting;              /* tempi may carry collectives in this process */
    tempi_locality *locality; /* between the ranks on this node, in the order of world_rank() */
    bool by_session;
#ifdef TEMPI_ACTS_IN_Session_init
    MPI_Session session; /* source of `world`, if by_session */
#endif
    _Atomic(const node_ranks *) of_world; /* MPI_COMM_WORLD's, for a fast look-up */
    tempi_lock lock;                      /* guards the two lists */
    node_ranks *all;
    node_ranks *free;
} peers = {.keyval = MPI_KEYVAL_INVALID};

/* ---- one communicator ------------------------------------------------------------------------ */

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
    tempi_lock_acquire(&peers.lock);
    for (node_ranks **at = &peers.free; *at && !found; at = &(*at)->free)
        if ((*at)->capacity >= size) {
            found = *at;
            *at = found->free;
            break;
        }
    tempi_lock_release(&peers.lock);
    const int capacity = (size + 511) / 512 * 512;
    if (!found && (found = new_memory(capacity))) {
        tempi_lock_acquire(&peers.lock);
        found->next = peers.all;
        peers.all = found;
        tempi_lock_release(&peers.lock);
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
    tempi_lock_acquire(&peers.lock);
    entry->free = peers.free;
    peers.free = entry;
    tempi_lock_release(&peers.lock);
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
    return peers.registry && !peers.one_node ? tempi_node_registry_count(peers.registry) : 0;
}

/* The i-th rank of the world on this node; -1: there are no more. */
static int world_rank(unsigned i, unsigned seen)
{
    if (peers.one_node)
        return (int)i < peers.size ? (int)i : -1;
    return i < seen ? tempi_node_registry_rank(peers.registry, i) : -1;
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
        if (n == 0 ||
            tempi_lib.Group_translate_ranks(peers.world, n, ranks, group, there) != MPI_SUCCESS)
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
    if (!peers.has_world)
        return false;
    return !peers.mixed || (comm == MPI_COMM_WORLD && !peers.by_session);
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
    if (entry && tempi_lib.Comm_set_attr(comm, peers.keyval, entry) != MPI_SUCCESS) {
        give_back(entry);
        entry = NULL;
    }
    if (comm == MPI_COMM_WORLD)
        atomic_store_explicit(&peers.of_world, entry, memory_order_release);
    return entry;
}

static bool current(const node_ranks *entry)
{
    return entry->seen == seen_now() || !peers.has_world;
}

static const node_ranks *node_ranks_of(MPI_Comm comm)
{
    void *value = NULL;
    int found = 0;
    const node_ranks *world = atomic_load_explicit(&peers.of_world, memory_order_acquire);
    if (world && comm == MPI_COMM_WORLD && current(world))
        return world;
    if (tempi_lib.Comm_get_attr(comm, peers.keyval, &value, &found) != MPI_SUCCESS)
        return NULL;
    if (found && current(value))
        return value;
    return learn(comm);
}

static bool is_other_llc(const node_ranks *entry, int peer, int64_t bytes)
{
    if (tempi_config.locality != TEMPI_LOCALITY_AUTO)
        return tempi_config.locality == TEMPI_LOCALITY_OTHER_LLC;
    return peers.locality && entry->lines &&
           tempi_locality_is_other_llc(peers.locality, entry->lines[peer], bytes);
}

static bool is_here(const node_ranks *entry, int peer)
{
    return peer >= 0 && peer < entry->size && (entry->bits[peer / 8] >> peer % 8 & 1) != 0;
}

int tempi_peer_class(MPI_Comm comm, int peer, int64_t bytes)
{
    const int unknown = peers.one_node ? TEMPI_PEER_NODE : TEMPI_PEER_OTHER;
    if (comm == MPI_COMM_SELF) /* contains only this rank, whatever the launcher says */
        return TEMPI_PEER_SELF;
    if (!peers.started || comm == MPI_COMM_NULL)
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

enum { SOME = 64 };

/* The registry indices of ranks [first, first + n) of the group, n <= SOME; false: one has none. */
static bool indices_of(MPI_Group group, int first, int n, int *indices)
{
    int ranks[SOME], there[SOME];
    for (int i = 0; i < n; ++i)
        ranks[i] = first + i;
    if (tempi_lib.Group_translate_ranks(group, n, ranks, peers.world, there) != MPI_SUCCESS)
        return false;
    for (int i = 0; i < n; ++i) {
        indices[i] = there[i] >= 0 ? tempi_node_registry_find(peers.registry, there[i]) : -1;
        if (indices[i] < 0)
            return false;
    }
    return true;
}

/* Allocates nothing: an allocation could fail on one member alone. */
static bool agree(MPI_Group group, int size)
{
    int indices[SOME], last = 0;
    for (int first = 0; first < size; first += SOME) {
        const int n = size - first < SOME ? size - first : SOME;
        if (!indices_of(group, first, n, indices))
            return false;
        for (int i = 0; i < n; ++i)
            last = indices[i] > last ? indices[i] : last;
    }
    /* First this one: then no member is asked that does not know it. */
    if (!tempi_node_registry_knows(peers.registry, tempi_node_registry_own(peers.registry), last))
        return false;
    for (int first = 0; first < size; first += SOME) {
        const int n = size - first < SOME ? size - first : SOME;
        if (!indices_of(group, first, n, indices))
            return false;
        for (int i = 0; i < n; ++i)
            if (!tempi_node_registry_knows(peers.registry, indices[i], last))
                return false;
    }
    return true;
}

bool tempi_peer_crowded(void)
{
    return peers.job.local > sysconf(_SC_NPROCESSORS_ONLN);
}

bool tempi_peer_says(tempi_line line)
{
    return !peers.registry || tempi_node_registry_says(peers.registry, line);
}

bool tempi_peer_may_agree(void)
{
    return peers.started && peers.registry && tempi_node_registry_own(peers.registry) >= 0 &&
           !peers.by_session && peers.has_world;
}

/* Ignores `mixed`, which may differ between processes. All members of a session's group have that
 * session, so they come to the same result. */
bool tempi_peer_agree(MPI_Comm comm, int size)
{
    MPI_Group group;
    if (!tempi_peer_may_agree() || (unsigned)size > tempi_node_registry_count(peers.registry) ||
        tempi_lib.Comm_group(comm, &group) != MPI_SUCCESS)
        return false;
    const bool all = agree(group, size);
    tempi_lib.Group_free(&group);
    return all;
}

static bool first_world_rank(MPI_Group group, int *out)
{
    const int first = 0;
    return tempi_lib.Group_translate_ranks(group, 1, &first, peers.world, out) == MPI_SUCCESS &&
           *out >= 0;
}

static bool agree_in_both(MPI_Group own, MPI_Group other, bool *first)
{
    MPI_Group both;
    int size, here, there;
    if (!first_world_rank(own, &here) || !first_world_rank(other, &there) ||
        tempi_lib.Group_union(own, other, &both) != MPI_SUCCESS)
        return false;
    *first = here < there;
    const bool all = tempi_lib.Group_size(both, &size) == MPI_SUCCESS &&
                     (unsigned)size <= tempi_node_registry_count(peers.registry) &&
                     agree(both, size);
    tempi_lib.Group_free(&both);
    return all;
}

bool tempi_peer_agree_inter(MPI_Comm comm, bool *first)
{
    MPI_Group own, other;
    if (!tempi_peer_may_agree() || tempi_lib.Comm_group(comm, &own) != MPI_SUCCESS)
        return false;
    bool all = false;
    if (tempi_lib.Comm_remote_group(comm, &other) == MPI_SUCCESS) {
        all = agree_in_both(own, other, first);
        tempi_lib.Group_free(&other);
    }
    tempi_lib.Group_free(&own);
    return all;
}

/* Appends to `out`, which has room for `size`. */
static bool list_members(MPI_Group group, int size, int *out, int *n)
{
    int more;
    if (tempi_lib.Group_size(group, &more) != MPI_SUCCESS || *n + more > size)
        return false;
    for (int first = 0; first < more; first += SOME) {
        const int part = more - first < SOME ? more - first : SOME;
        if (!indices_of(group, first, part, out + *n + first))
            return false;
    }
    *n += more;
    return true;
}

bool tempi_peer_members(MPI_Comm comm, int size, bool own_first, int *out)
{
    MPI_Group own, other = MPI_GROUP_EMPTY;
    int inter = 0, n = 0;
    if (!tempi_peer_may_agree() || tempi_lib.Comm_test_inter(comm, &inter) != MPI_SUCCESS ||
        tempi_lib.Comm_group(comm, &own) != MPI_SUCCESS)
        return false;
    bool good = !inter || tempi_lib.Comm_remote_group(comm, &other) == MPI_SUCCESS;
    good = good && list_members(own_first || !inter ? own : other, size, out, &n) &&
           (!inter || list_members(own_first ? other : own, size, out, &n)) && n == size;
    tempi_lib.Group_free(&own);
    if (other != MPI_GROUP_EMPTY)
        tempi_lib.Group_free(&other);
    return good;
}

/* First this process, as in agree(). */
static bool whole_node_agrees(void)
{
    const int local = peers.job.local, own = tempi_node_registry_own(peers.registry);
    if (own >= local || !tempi_node_registry_knows(peers.registry, own, local - 1))
        return false;
    for (int i = 0; i < local; ++i)
        if (!tempi_node_registry_knows(peers.registry, i, local - 1))
            return false;
    return true;
}

static int ascending(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* The ranks there of the processes of this node, `local` at most; returns their number. */
static int node_ranks_in(MPI_Group group, int local, int *ranks)
{
    int found = 0;
    for (int i = 0; i < local; ++i) {
        const int world = tempi_node_registry_rank(peers.registry, (unsigned)i);
        int there = MPI_UNDEFINED;
        if (tempi_lib.Group_translate_ranks(peers.world, 1, &world, group, &there) == MPI_SUCCESS &&
            there >= 0)
            ranks[found++] = there;
    }
    qsort(ranks, (size_t)found, sizeof *ranks, ascending);
    return found;
}

bool tempi_peer_node_group(MPI_Comm comm, MPI_Group *out)
{
    MPI_Group group;
    if (!tempi_peer_may_agree() || !whole_node_agrees() ||
        tempi_lib.Comm_group(comm, &group) != MPI_SUCCESS)
        return false;
    const int local = peers.job.local;
    int *ranks = malloc((size_t)local * sizeof *ranks);
    const bool good = ranks && tempi_lib.Group_incl(group, node_ranks_in(group, local, ranks),
                                                    ranks, out) == MPI_SUCCESS;
    free(ranks);
    tempi_lib.Group_free(&group);
    return good;
}

int tempi_peer_probe(uintptr_t comm, int rank)
{
    const MPI_Comm which = tempi_comm_of(comm);
    if (!peers.started)
        return TEMPI_ERR_NO_MPI;
    if (which == MPI_COMM_NULL)
        return TEMPI_ERR_ARG;
    const node_ranks *entry = node_ranks_of(which);
    if (entry && peers.locality && entry->lines && is_here(entry, rank))
        tempi_locality_probe(peers.locality, entry->lines[rank]);
    return TEMPI_OK;
}

int tempi_peer_report(uintptr_t comm, int rank, int *out)
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

static void join_registry(const tempi_job *job, int rank)
{
    peers.registry = tempi_node_registry_join(TEMPI_NODE_REGISTRY_FOLDER, job->name, rank,
                                              job->local);
    peers.refused = !peers.registry;
}

void tempi_peer_register(void)
{
    int rank, size;
    if (peers.started || peers.registry || !tempi_launcher_guess(&rank, &size))
        return;
    tempi_launcher_ask(rank, size, &peers.job);
    peers.registered = rank;
    if (peers.job.name[0] && peers.job.local != 1)
        join_registry(&peers.job, rank);
}

/* The launcher's variables may have been those of another job. */
static bool registered_as(const tempi_job *job, int rank)
{
    return peers.registry && peers.registered == rank && strcmp(peers.job.name, job->name) == 0;
}

static void enter_registry(const tempi_job *job, int rank, bool wanted)
{
    const bool known = registered_as(job, rank), joins = known && peers.acting && !peers.by_session;
    if (peers.registry && !joins && !(known && wanted)) {
        tempi_node_registry_settle(peers.registry, false);
        tempi_node_registry_leave(peers.registry);
        peers.registry = NULL;
    }
    if (!peers.registry && job->name[0] && wanted)
        join_registry(job, rank);
    if (peers.registry)
        tempi_node_registry_settle(peers.registry, joins);
}

_Static_assert(sizeof(tempi_message_words) <= TEMPI_NODE_REGISTRY_MESSAGES,
               "they have their place");

static void start(void)
{
    tempi_job job;
    int rank;
    if (tempi_lib.Group_size(peers.world, &peers.size) != MPI_SUCCESS ||
        tempi_lib.Group_rank(peers.world, &rank) != MPI_SUCCESS || rank < 0 ||
        tempi_lib.Comm_create_keyval(tempi_comm_attribute_not_copied, on_comm_deleted,
                                     &peers.keyval, NULL) != MPI_SUCCESS)
        return;
    tempi_launcher_ask(rank, peers.size, &job);
    peers.one_node = peers.size == 1 || job.local >= peers.size;
    const bool looks = tempi_config.locality == TEMPI_LOCALITY_AUTO && job.local > 1;
    enter_registry(&job, rank, !peers.one_node || looks);
    if (looks && peers.registry && tempi_node_registry_lines(peers.registry))
        peers.locality = tempi_locality_open(
            tempi_node_registry_lines(peers.registry),
            peers.one_node ? rank : tempi_node_registry_own(peers.registry), job.local);
    if (peers.registry && tempi_node_registry_own(peers.registry) >= 0 && tempi_config.autotune &&
        !tempi_config.force)
        tempi_message_trials_start(tempi_node_registry_messages(peers.registry),
                                   tempi_node_registry_own(peers.registry));
    if (peers.refused && peers.acting && rank == 0) /* one rank of the job says it */
        TEMPI_LOG(TEMPI_LOG_WARN,
                  "cannot use " TEMPI_NODE_REGISTRY_FOLDER ": the ranks of a node do not find each "
                  "other, and their collectives are left to the library (docs/collectives.md)");
    else if (!peers.one_node && !peers.registry)
        TEMPI_LOG(TEMPI_LOG_INFO,
                  "cannot find the ranks of this node: every other rank is treated as remote");
    peers.started = true;
}

/* Entries of existing communicators stay valid; new ones get none. */
static void forget_world(void)
{
    atomic_store_explicit(&peers.of_world, NULL, memory_order_release);
    if (peers.has_world)
        tempi_lib.Group_free(&peers.world);
    peers.has_world = false;
}

void tempi_peer_world_began(bool acting)
{
    peers.acting = acting && tempi_config.collectives == TEMPI_COLLECTIVES_AUTO;
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
    tempi_message_trials_stop();
    tempi_locality_close(peers.locality);
    peers.locality = NULL;
    tempi_node_registry_leave(peers.registry);
    peers.registry = NULL;
}

void tempi_peer_clear(void)
{
    tempi_lock_acquire(&peers.lock);
    while (peers.all) {
        node_ranks *entry = peers.all;
        peers.all = entry->next;
        free(entry);
    }
    peers.free = NULL;
    tempi_lock_release(&peers.lock);
}
