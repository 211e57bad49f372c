/* What tempi keeps of a communicator, as its attribute. If all its processes are on this node and
 * run tempi: the shared memory between them, made in the first call that needs it. If not: the part
 * of it that is on this node (node_part.h). */
#ifndef TEMPI_SHIM_NODE_COMM_H
#define TEMPI_SHIM_NODE_COMM_H

#include "base/fallback.h"
#include "base/hash.h"
#include "base/lock.h"
#include "base/published.h"
#include "exchange/post_box.h"
#include "exchange/segment.h"
#include "shim/abi.h"
#include "shim/coll/edges.h"
#include "shim/request/quiet.h"

#include <stddef.h>

/* What shared memory an exchange needs. */
typedef enum tempi_connection { TEMPI_CONNECT_RINGS, TEMPI_CONNECT_POSTS } tempi_connection;

/* Of a file of shared memory. */
typedef struct tempi_shared_name {
    char text[TEMPI_SEGMENT_NAME]; /* empty: it could not be created */
    bool kept;                     /* from another communicator */
} tempi_shared_name;

typedef struct tempi_node_comm {
    /* What a call that passes reads is in one cache line, but for one function where handles have 8
     * bytes. */
    _Alignas(64) MPI_Comm handle; /* MPI_COMM_NULL while in the free list */
    /* Calls of each function that the library does if their datatypes are predefined, before one
     * has to be looked at again. They are counted in `seen`. Below 0 after a call that was to be
     * looked at. */
    int32_t passes[TEMPI_COLLECTIVE_COUNT];
    bool wants;    /* its processes have something to agree on: blocking calls do not pass */
    bool together; /* all are on this node and run tempi; the same in all its processes */
    bool split;    /* they are not, but calls may be carried in part; the same in all of a node */
    /* Its processes, of both groups of an intercommunicator: the group of the process that has the
     * lowest rank in MPI_COMM_WORLD of the two first ones comes first. */
    int size, rank;
    int peers_begin, peers; /* those that this one exchanges blocks with: all, or the other group */
    uint64_t calls;         /* exchanges so far */
    uint32_t seen[TEMPI_COLLECTIVE_COUNT]; /* calls of each function until it was carried */
    bool carried[TEMPI_COLLECTIVE_COUNT];
    /* Its nonblocking and persistent calls, as the library's deliver wrong blocks here. The same in
     * all its processes. */
    bool corrected[TEMPI_COLLECTIVE_COUNT];
    bool misordered[TEMPI_COLLECTIVE_COUNT]; /* the same of its blocking calls */
    bool failed;  /* a call has: its memory is not kept for other communicators */
    int *members; /* its processes; NULL: unknown */
    tempi_shared_name rings_name, posts_name;
    tempi_segment segment;
    tempi_ring_end *to, *from;    /* for each process; NULL until the first exchange */
    tempi_copy_choice own_copies; /* of blocks of this process to itself */
    tempi_post_box *posts;        /* for exchanges that a request completes */
    bool asked_posts;             /* whether they could be made was agreed on */
    /* What nonblocking calls have left to the next blocking collective, as `wants` tells: the same
     * in all its processes. */
    bool wants_posts;
    bool wants_answers;                  /* whether to carry some of the functions */
    bool asked[TEMPI_COLLECTIVE_COUNT];  /* these */
    bool needed[TEMPI_COLLECTIVE_COUNT]; /* this process has blocks that tempi should carry */
    tempi_lock starting;                 /* held by the thread that starts a request */
    uint64_t posted;                     /* nonblocking calls so far */
    uint64_t channels;                   /* persistent requests so far */
    struct tempi_coll_request *requests; /* that are not complete */
    struct tempi_unmatched *unmatched;   /* messages whose requests were not started yet */
    struct tempi_node_comm *next_active; /* with such requests */
    int holders;                         /* uses beside the communicator's */
    bool deleted;                        /* the communicator is: the last request gives this back */
    tempi_edges all;                     /* one block for each of the peers */
    tempi_edges none;                    /* none */
    tempi_edges one;                     /* one block, for the root of the call */
    tempi_edges out, in;           /* of its neighbours; `first` is NULL until they are asked for */
    struct tempi_node_part *part;  /* NULL until the first call */
    struct tempi_node_part *alone; /* the same, for calls in which each process packs for itself */
    struct tempi_node_comm *next;  /* of all */
    struct tempi_node_comm *next_free;
} tempi_node_comm;

static inline bool tempi_node_comm_is_inter(const tempi_node_comm *node)
{
    return node->peers != node->size;
}

/* The communicators used last. Memory of a tempi_node_comm is recycled but never freed before MPI
 * ends, so a stale entry can be read safely: its handle no longer matches. */
enum { TEMPI_NODE_CACHE_BITS = 6 };
extern tempi_node_comm *tempi_node_cache[1 << TEMPI_NODE_CACHE_BITS];

static inline unsigned tempi_node_home(MPI_Comm comm)
{
    return (unsigned)tempi_hash_home(tempi_handle(comm), TEMPI_NODE_CACHE_BITS);
}

/* After a cache miss: asks the attribute. NULL: the library does the call. */
tempi_node_comm *tempi_node_comm_lookup(MPI_Comm comm);

/* NULL: it is not in the cache. */
static inline tempi_node_comm *tempi_node_comm_cached(MPI_Comm comm)
{
    tempi_node_comm *cached = TEMPI_PUBLISHED(tempi_node_cache[tempi_node_home(comm)]);
    return cached && __atomic_load_n(&cached->handle, __ATOMIC_RELAXED) == comm ? cached : NULL;
}

static inline tempi_node_comm *tempi_node_comm_of(MPI_Comm comm)
{
    tempi_node_comm *cached = tempi_node_comm_cached(comm);
    return cached ? cached : tempi_node_comm_lookup(comm);
}

/* Before the first such exchange: makes the shared memory. All processes of the communicator must
 * call it, in the same call that may wait for all of them, and get the same answer; false: the
 * library does these calls. */
bool tempi_node_comm_connect(MPI_Comm comm, tempi_node_comm *node, tempi_connection what);

/* The communicators whose calls may pass, the blocking and then the nonblocking ones, or
 * tempi_nothing. Of those with the same place it is the one that has come to pass last. Those
 * that want to agree on something are not in the first half. */
enum { TEMPI_NODE_PASSING_BITS = 8, TEMPI_NODE_PASSING_REQUESTS = 1 << TEMPI_NODE_PASSING_BITS };
extern void *tempi_node_passing[TEMPI_QUIET_TABLE];
_Static_assert(2 << TEMPI_NODE_PASSING_BITS == TEMPI_QUIET_TABLE, "it is the table");
_Static_assert(offsetof(tempi_node_comm, passes) + sizeof(int32_t[TEMPI_COLLECTIVE_COUNT]) <=
                   TEMPI_NOTHING_BYTES,
               "tempi_nothing may stand for one: its handle is that of no communicator");

/* Int handles are numbered from 0 in their kind, of which MPICH has three; the upper bits, which
 * name it, would take more code than a line holds. So MPI_COMM_WORLD and a communicator of number 0
 * look each other's calls up where a program uses them in turn. */
static inline size_t tempi_node_passing_home(MPI_Comm comm)
{
#ifdef TEMPI_ABI_INT_HANDLES
    return (uint8_t)comm;
#else
    return tempi_hash_home(tempi_handle(comm), TEMPI_NODE_PASSING_BITS);
#endif
}

/* The communicator whose calls may pass at that place; none while it is not quiet. */
static inline tempi_node_comm *tempi_node_passing_at(size_t place)
{
    void *const *table = TEMPI_PUBLISHED(tempi_quiet_table);
    return TEMPI_PUBLISHED(table[place]);
}

/* The next so many calls of a function need not be looked at. */
static inline void tempi_node_comm_pass(tempi_node_comm *node, int function, uint16_t calls)
{
    void **place = &tempi_node_passing[tempi_node_passing_home(node->handle)];
    node->seen[function] += calls;
    node->passes[function] = calls;
    if (!node->wants)
        __atomic_store_n(place, node, __ATOMIC_RELEASE);
    __atomic_store_n(place + TEMPI_NODE_PASSING_REQUESTS, node, __ATOMIC_RELEASE);
}

/* A call is looked at. Those that do not pass count down, too: without this the number would come
 * round. */
static inline void tempi_node_comm_looked_at(tempi_node_comm *node, int function)
{
    if (node->passes[function] < 0)
        node->passes[function] = 0;
}

/* The next call is looked at. */
static inline void tempi_node_comm_look(tempi_node_comm *node, int function)
{
    if (node->passes[function] > 0)
        node->seen[function] -= (uint32_t)node->passes[function];
    node->passes[function] = 0;
}

/* Communicators whose processes have something to agree on in the next blocking collective. */
extern int tempi_agreements_wanted;
void tempi_node_comm_want_posts(tempi_node_comm *node);
/* Whether to carry that function. */
void tempi_node_comm_ask(tempi_node_comm *node, int function);
/* All of these were answered. */
void tempi_node_comm_answered(tempi_node_comm *node);

/* Whether nonblocking calls can be carried on it. */
bool tempi_node_comm_has_posts(const tempi_node_comm *node);

/* A request uses it: until it releases it, a communicator that is freed keeps its memory. */
void tempi_node_comm_retain(tempi_node_comm *node);
void tempi_node_comm_release(tempi_node_comm *node);

/* Before and after the library's finalize. */
void tempi_node_comm_stop(void);
void tempi_node_comm_clear(void);

#endif
