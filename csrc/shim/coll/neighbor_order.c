#include "shim/coll/neighbor_order.h"
#include "base/fallback.h"
#include "base/log.h"
#include "base/stats.h"
#include "shim/comm/peer_world.h"

#include <stdlib.h>

enum { UNKNOWN, RIGHT, WRONG };

static const MPI_Count one_each[] = {1, 1};

static int exchange_by_types(MPI_Comm ring, bool blocking, const int *sent, int *received,
                             MPI_Request *request)
{
    static const MPI_Aint bytes[] = {0, sizeof(int)};
    const MPI_Datatype types[] = {MPI_INT, MPI_INT};
    return blocking
               ? tempi_fwd_Neighbor_alltoallw(&tempi_lib, sent, one_each, bytes, types, received,
                                              one_each, bytes, types, ring)
               : tempi_fwd_Ineighbor_alltoallw(&tempi_lib, sent, one_each, bytes, types, received,
                                               one_each, bytes, types, ring, request);
}

static int exchange_by_counts(MPI_Comm ring, bool blocking, const int *sent, int *received,
                              MPI_Request *request)
{
    static const MPI_Aint elements[] = {0, 1};
    return blocking ? tempi_fwd_Neighbor_alltoallv(&tempi_lib, sent, one_each, elements, MPI_INT,
                                                   received, one_each, elements, MPI_INT, ring)
                    : tempi_fwd_Ineighbor_alltoallv(&tempi_lib, sent, one_each, elements, MPI_INT,
                                                    received, one_each, elements, MPI_INT, ring,
                                                    request);
}

static int exchange_alike(MPI_Comm ring, bool blocking, const int *sent, int *received,
                          MPI_Request *request)
{
    return blocking ? tempi_fwd_Neighbor_alltoall(&tempi_lib, sent, 1, MPI_INT, received, 1,
                                                  MPI_INT, ring)
                    : tempi_fwd_Ineighbor_alltoall(&tempi_lib, sent, 1, MPI_INT, received, 1,
                                                   MPI_INT, ring, request);
}

typedef int exchange_fn(MPI_Comm ring, bool blocking, const int *sent, int *received,
                        MPI_Request *request);
static exchange_fn *const exchanges[] = {exchange_alike, exchange_by_counts, exchange_by_types};
enum { FUNCTIONS = sizeof exchanges / sizeof exchanges[0] };

static int number_of(int function)
{
    return function == TEMPI_FUNCTION_Neighbor_alltoall    ? 0
           : function == TEMPI_FUNCTION_Neighbor_alltoallv ? 1
                                                           : 2;
}

/* Each process sends itself two blocks: right is that they are exchanged. */
static int attempt(MPI_Comm ring, int function, bool blocking)
{
    const int sent[] = {1, 2};
    int received[] = {0, 0};
    MPI_Request request = MPI_REQUEST_NULL;
    const int rc = exchanges[number_of(function)](ring, blocking, sent, received, &request);
    if (rc != MPI_SUCCESS ||
        (!blocking && tempi_lib.Wait(&request, MPI_STATUS_IGNORE) != MPI_SUCCESS))
        return UNKNOWN;
    return received[0] == 1 && received[1] == 2 ? WRONG : RIGHT;
}

static int try_alone(int function, bool blocking)
{
    const int one = 1, periodic = 1;
    MPI_Comm ring;
    if (tempi_lib.Cart_create(MPI_COMM_SELF, 1, &one, &periodic, 0, &ring) != MPI_SUCCESS)
        return UNKNOWN;
    const int found = attempt(ring, function, blocking);
    tempi_lib.Comm_free(&ring);
    return found;
}

static bool is_wrong(int function, bool blocking)
{
    static int known[2][FUNCTIONS];
    int *at = &known[blocking][number_of(function)], found = __atomic_load_n(at, __ATOMIC_RELAXED);
    if (found == UNKNOWN)
        __atomic_store_n(at, found = try_alone(function, blocking), __ATOMIC_RELAXED);
    return found == WRONG;
}

/* What delivers wrong blocks by counts is carried with one count for all, too: MPICH 4.0.2
 * exchanges the two blocks of a dimension then, but reverses those of several in which a process is
 * its own neighbour. */
static bool is_doubtful(int function, bool blocking)
{
    return is_wrong(function, blocking) || (function == TEMPI_FUNCTION_Neighbor_alltoall &&
                                            is_wrong(TEMPI_FUNCTION_Neighbor_alltoallv, blocking));
}

bool tempi_neighbor_order_is_wrong(int function)
{
    return is_wrong(function, false);
}

/* Whether the grid has a place for each process. In Open MPI 5.0.11 what MPI_Comm_create_group made
 * of some processes of a grid still says that it is the whole one, and MPI_Cart_shift divides by 0.
 */
static bool is_whole(MPI_Comm comm, int dims)
{
    int size = 0;
    int64_t places = 1;
    int *of = malloc(3 * ((size_t)dims + 1) * sizeof *of); /* the other two are not needed */
    if (!of || tempi_lib.Comm_size(comm, &size) != MPI_SUCCESS ||
        tempi_lib.Cart_get(comm, dims, of, of + dims, of + 2 * dims) != MPI_SUCCESS)
        places = -1;
    for (int d = 0; d < dims && places >= 0; ++d)
        places *= of[d];
    free(of);
    return places == size;
}

int tempi_neighbor_dimensions(MPI_Comm comm)
{
    int kind = MPI_UNDEFINED, dims = 0;
    if (tempi_lib.Topo_test(comm, &kind) != MPI_SUCCESS || kind != MPI_CART ||
        tempi_lib.Cartdim_get(comm, &dims) != MPI_SUCCESS || !is_whole(comm, dims))
        return 0;
    return dims;
}

bool tempi_neighbors_are_one(MPI_Comm comm, int dimension)
{
    int before, after;
    return tempi_lib.Cart_shift(comm, dimension, 1, &before, &after) == MPI_SUCCESS &&
           before == after && before != MPI_PROC_NULL;
}

bool tempi_neighbor_order_is_wrong_on(MPI_Comm comm, int function)
{
    const int dims = tempi_neighbor_dimensions(comm);
    for (int d = 0; d < dims; ++d)
        if (tempi_neighbors_are_one(comm, d))
            return is_doubtful(function, false);
    return false;
}

bool tempi_neighbor_order_is_wrong_in_blocking(int function)
{
    return is_doubtful(function, true);
}

/* The library is tried first: for one that is right no grid is looked at. */
void tempi_neighbor_order_left(MPI_Comm comm, int function, const char *name)
{
    static int said;
    if (comm == MPI_COMM_NULL || !is_doubtful(function, false) ||
        !tempi_neighbor_order_is_wrong_on(comm, function))
        return;
    tempi_stat_add(TEMPI_STAT_fallback_quirk, 1);
    if (!__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED) &&
        tempi_peer_says(TEMPI_LINE_NEIGHBOR_ORDER))
        TEMPI_LOG(
            TEMPI_LOG_WARN,
            "%s: this library exchanges the blocks of two neighbors that are one process, and "
            "tempi does not carry this call: %srun tempi on all ranks of the node "
            "(docs/collectives.md)",
            name, is_doubtful(function, true) ? "" : "use the blocking form, or ");
}
