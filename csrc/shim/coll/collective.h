/* Collectives that pass blocks of derived datatypes, within a node. If all processes of the
 * communicator are on this node and run tempi, the blocks go through shared memory
 * (exchange/exchange.h) and the library is not called.
 *
 * All processes must decide alike, though each has types and sizes of its own:
 *
 *   MPI_Alltoallw, MPI_Neighbor_alltoallw   always: they are used for derived datatypes
 *                                           (but for a process alone: nobody has to decide alike)
 *   the others                              if one process had a derived datatype, or device memory
 *                                           that only tempi can send, when they last agreed on it:
 *                                           at the first call of the function on the communicator
 *                                           and, ever more rarely, at later ones; those whose
 *                                           blocks the library misorders there (neighbor_order.h)
 *                                           always */
#ifndef TEMPI_SHIM_COLLECTIVE_H
#define TEMPI_SHIM_COLLECTIVE_H

#include "base/fallback.h"
#include "shim/bounce/bounce.h"
#include "shim/coll/node_comm.h"
#include "shim/type/types.h"

extern bool tempi_collectives;

static inline bool tempi_collective_has_types_of_blocks(int function)
{
    return function == TEMPI_FUNCTION_Alltoallw || function == TEMPI_FUNCTION_Neighbor_alltoallw;
}

/* Whether each block goes from one process to one, with a count of its own: so the library can do
 * a part of the call. */
static inline bool tempi_collective_has_pairs(int function)
{
    return tempi_collective_has_types_of_blocks(function) || function == TEMPI_FUNCTION_Alltoallv ||
           function == TEMPI_FUNCTION_Neighbor_alltoallv || function == TEMPI_FUNCTION_Gatherv ||
           function == TEMPI_FUNCTION_Scatterv;
}

/* Whether the library chooses its algorithm of MPI_Alltoall by bytes alone: MPICH does. */
extern bool tempi_alltoall_is_sized;

/* Whether packed bytes may stand for the blocks, on each process by itself: the library neither
 * cuts them by elements (as some do in MPI_Bcast, Gather, Scatter and Allgather(v)) nor chooses an
 * algorithm by the datatype (as components of Open MPI do in MPI_Alltoall). */
static inline bool tempi_collective_is_packed_alone(int function)
{
    return (function == TEMPI_FUNCTION_Alltoall && tempi_alltoall_is_sized) ||
           function == TEMPI_FUNCTION_Neighbor_alltoall ||
           function == TEMPI_FUNCTION_Neighbor_allgather ||
           function == TEMPI_FUNCTION_Neighbor_allgatherv;
}

/* Whether the call may be carried in part. Open MPI passes blocks of intercommunicators on through
 * its local root, by elements of that one's datatype. */
static inline bool tempi_collective_splits(const tempi_node_comm *node, int function)
{
    const bool rooted = function == TEMPI_FUNCTION_Gatherv || function == TEMPI_FUNCTION_Scatterv;
    return node->split &&
           (tempi_collective_is_packed_alone(function) ||
            (tempi_collective_has_pairs(function) && !(rooted && tempi_node_comm_is_inter(node))));
}

/* Whether each process decides for itself. */
static inline bool tempi_collective_decides_alone(const tempi_node_comm *node, int function)
{
    return node->split && tempi_collective_is_packed_alone(function);
}

/* Whether such a call may be carried, wholly or in part. */
static inline bool tempi_collective_concerns(const tempi_node_comm *node, int function)
{
    return node && (node->together || tempi_collective_splits(node, function));
}

/* The calls in which the processes agree anew: the first one, the second, the fourth and so on. */
enum { TEMPI_COLLECTIVE_RARELY = 4096 };

static inline bool tempi_collective_is_due(uint32_t calls)
{
    return (calls & ((calls < TEMPI_COLLECTIVE_RARELY ? calls : TEMPI_COLLECTIVE_RARELY) - 1)) == 0;
}

/* Calls after the `calls`th one, of at least one, before such a call. */
static inline uint16_t tempi_collective_until_due(uint32_t calls)
{
    const uint32_t next = calls < TEMPI_COLLECTIVE_RARELY
                              ? UINT32_C(1) << (32 - __builtin_clz(calls | 1))
                              : (calls | (TEMPI_COLLECTIVE_RARELY - 1)) + 1;
    return (uint16_t)(next - calls - 1);
}

/* Counts a call; whether it is one of these. */
static inline bool tempi_collective_falls_due(tempi_node_comm *node, int function)
{
    tempi_node_comm_look(node, function);
    return tempi_collective_is_due(++node->seen[function]);
}

/* Whether requests of that function are carried, once there is memory for them. */
static inline bool tempi_collective_is_decided(const tempi_node_comm *node, int function)
{
    return tempi_collective_has_types_of_blocks(function) || node->carried[function] ||
           node->corrected[function] || node->misordered[function];
}

/* NULL: the library does a call of that function. */
static inline tempi_node_comm *tempi_collective_node(MPI_Comm comm, int function)
{
    tempi_node_comm *node = tempi_collectives ? tempi_node_comm_of(comm) : NULL;
    if (!node)
        return NULL;
    tempi_node_comm_looked_at(node, function);
    return tempi_collective_concerns(node, function) ? node : NULL;
}

/* At each call of a function: the communicator if this process may carry it; NULL: the library does
 * it. */
static inline tempi_node_comm *tempi_collective_begin(MPI_Comm comm, int function)
{
    tempi_node_comm *node = tempi_collective_node(comm, function);
    if (!node)
        return NULL;
    return node->carried[function] || node->misordered[function] ||
                   tempi_collective_has_types_of_blocks(function) ||
                   tempi_collective_falls_due(node, function)
               ? node
               : NULL;
}

/* The same for a nonblocking one, in which the processes cannot agree: they have agreed before, in
 * a blocking one or when the communicator was made; or they will, in the next blocking one. Then
 * `asked` is set, and the call only tells whether this process has such blocks. */
static inline tempi_node_comm *tempi_collective_begin_request(MPI_Comm comm, int function)
{
    tempi_node_comm *node = tempi_collective_node(comm, function);
    if (!node)
        return NULL;
    if (tempi_collective_decides_alone(node, function))
        return node->carried[function] || node->corrected[function] ||
                       tempi_collective_falls_due(node, function)
                   ? node
                   : NULL;
    if (!tempi_collective_is_decided(node, function)) {
        if (!tempi_collective_falls_due(node, function))
            return NULL;
        tempi_node_comm_ask(node, function);
        return node;
    }
    if (tempi_node_comm_has_posts(node))
        return node;
    tempi_node_comm_want_posts(node);
    return node->corrected[function] ? node : NULL; /* alone */
}

/* At each blocking collective. */
void tempi_collective_agree(MPI_Comm comm);

static inline bool tempi_collective_meets(void)
{
    return __builtin_expect(__atomic_load_n(&tempi_agreements_wanted, __ATOMIC_RELAXED), 0);
}

static inline void tempi_collective_meet(MPI_Comm comm)
{
    if (tempi_collective_meets())
        tempi_collective_agree(comm);
}

/* Whether the library surely does a call, if its datatypes are predefined, and as an earlier one
 * has found that all these calls are its own: a few nanoseconds, also where its own take ten. */
static inline bool tempi_collective_passes(MPI_Comm comm, int function, bool blocking)
{
    tempi_node_comm *node = tempi_node_passing_at(tempi_node_passing_home(comm) +
                                                  (blocking ? 0 : TEMPI_NODE_PASSING_REQUESTS));
    if (__builtin_expect(TEMPI_GLANCE(node->handle) != comm, 0))
        return false;
    return --node->passes[function] >= 0;
}

/* The same without such an earlier one: then the call is counted here, else by
 * tempi_collective_begin or, if it is not blocking, tempi_collective_begin_request. */
static inline bool tempi_collective_leaves(MPI_Comm comm, int function, bool blocking)
{
    if (!tempi_collectives)
        return true;
    tempi_node_comm *node = tempi_node_comm_cached(comm);
    if (!node || (blocking && node->wants))
        return false;
    const bool concerns = tempi_collective_concerns(node, function);
    tempi_node_comm_look(node, function);
    if (concerns && (tempi_collective_is_decided(node, function) ||
                     tempi_collective_is_due(node->seen[function] + 1)))
        return false;
    const uint32_t calls = ++node->seen[function];
    tempi_node_comm_pass(node, function, tempi_collective_until_due(calls));
    return true;
}

/* Whether a persistent send to MPI_PROC_NULL lets the library's persistent collectives under way
 * seem complete: it does in Intel MPI (2021.18 and 2021.19), also one that is not started. */
extern bool tempi_null_sends_mislead;

/* Whether the library's MPI_Alltoallw on one process takes less time than tempi's: Open MPI's. */
extern bool tempi_alltoallw_copies;

static inline bool tempi_numbers_begin_alike(tempi_numbers a, tempi_numbers b)
{
    return a.of && b.of && tempi_number_at(a, 0) == tempi_number_at(b, 0);
}

static inline bool tempi_numbers_begin_at_zero(tempi_numbers a)
{
    return a.of && tempi_number_at(a, 0) == 0;
}

/* Whether such a library does an MPI_Alltoallw or MPI_Ialltoallw: of a process alone and one
 * predefined type it is a copy, made before tempi has described it. Nobody else has to decide
 * alike. Open MPI's copies of unlike types are wrong, and it multiplies displacements by extents
 * (coll/self, 5.0.11). */
static inline bool tempi_collective_copies(MPI_Comm comm, bool blocking, const void *sendbuf,
                                           tempi_numbers sendcounts, tempi_numbers sdispls,
                                           const MPI_Datatype *sendtypes, tempi_numbers recvcounts,
                                           tempi_numbers rdispls, const MPI_Datatype *recvtypes)
{
    if (!tempi_alltoallw_copies || sendbuf == MPI_IN_PLACE)
        return false;
    const tempi_node_comm *node = tempi_node_comm_cached(comm);
    return node && node->size == 1 && !(blocking && node->wants) && sendtypes && recvtypes &&
           sendtypes[0] == recvtypes[0] && tempi_type_plain(recvtypes[0]) &&
           tempi_numbers_begin_alike(sendcounts, recvcounts) &&
           tempi_numbers_begin_at_zero(sdispls) && tempi_numbers_begin_at_zero(rdispls);
}

/* The same for one that makes a persistent request. */
static inline tempi_node_comm *tempi_collective_begin_init(MPI_Comm comm, int function)
{
    tempi_node_comm *node = tempi_collective_node(comm, function);
    if (!node)
        return NULL;
    tempi_node_comm_look(node, function); /* its processes may come to carry the function */
    return node;
}

/* After MPI_Init; before and after the library's finalize. */
void tempi_collective_start(void);
void tempi_collective_stop(void);
void tempi_collective_clear(void);

/* Which process has blocks for which. */
typedef enum tempi_pattern {
    TEMPI_PATTERN_ALL, /* each for each */
    TEMPI_PATTERN_TO_ROOT,
    TEMPI_PATTERN_FROM_ROOT,
    TEMPI_PATTERN_NEIGHBORS
} tempi_pattern;

typedef struct tempi_collective {
    int function; /* TEMPI_FUNCTION_* */
    tempi_pattern pattern;
    MPI_Comm comm;
    tempi_node_comm *node; /* by tempi_collective_begin */
    int root;
    const char *name; /* of the MPI function */
    bool alone; /* this process alone puts in order what the library delivers (coll_request.c) */
} tempi_collective;

/* buffers[0] is sent, buffers[1] received. False: the library must do the call. True: it is done,
 * *result is the error code for the program, which was raised. */
bool tempi_collective_carry(const tempi_collective *call, const tempi_bounce_argument *buffers,
                            int *result);
/* A communicator was made that may have a topology, in a call that may wait for all its processes.
 */
void tempi_collective_connect(MPI_Comm comm);

#endif
