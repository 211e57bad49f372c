#include "shim/comm/peer_agree.h"
#include "shim/comm/peer_world.h"

#include <stdlib.h>

enum { SOME = 64 };

/* The registry indices of ranks [first, first + n) of the group, n <= SOME; false: one has none. */
static bool indices_of(MPI_Group group, int first, int n, int *indices)
{
    int ranks[SOME], there[SOME];
    for (int i = 0; i < n; ++i)
        ranks[i] = first + i;
    if (tempi_lib.Group_translate_ranks(group, n, ranks, tempi_peers.world, there) != MPI_SUCCESS)
        return false;
    for (int i = 0; i < n; ++i) {
        indices[i] = there[i] >= 0 ? tempi_node_registry_find(tempi_peers.registry, there[i]) : -1;
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
    if (!tempi_node_registry_knows(tempi_peers.registry,
                                   tempi_node_registry_own(tempi_peers.registry), last))
        return false;
    for (int first = 0; first < size; first += SOME) {
        const int n = size - first < SOME ? size - first : SOME;
        if (!indices_of(group, first, n, indices))
            return false;
        for (int i = 0; i < n; ++i)
            if (!tempi_node_registry_knows(tempi_peers.registry, indices[i], last))
                return false;
    }
    return true;
}

bool tempi_peer_may_agree(void)
{
    return tempi_peers.started && tempi_peers.registry &&
           tempi_node_registry_own(tempi_peers.registry) >= 0 && !tempi_peers.by_session &&
           tempi_peers.has_world;
}

/* Ignores `mixed`, which may differ between processes. All members of a session's group have that
 * session, so they come to the same result. */
bool tempi_peer_agree(MPI_Comm comm, int size)
{
    MPI_Group group;
    if (!tempi_peer_may_agree() ||
        (unsigned)size > tempi_node_registry_count(tempi_peers.registry) ||
        tempi_lib.Comm_group(comm, &group) != MPI_SUCCESS)
        return false;
    const bool all = agree(group, size);
    tempi_lib.Group_free(&group);
    return all;
}

static bool first_world_rank(MPI_Group group, int *out)
{
    const int first = 0;
    return tempi_lib.Group_translate_ranks(group, 1, &first, tempi_peers.world, out) ==
               MPI_SUCCESS &&
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
                     (unsigned)size <= tempi_node_registry_count(tempi_peers.registry) &&
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
    const int local = tempi_peers.job.local, own = tempi_node_registry_own(tempi_peers.registry);
    if (own >= local || !tempi_node_registry_knows(tempi_peers.registry, own, local - 1))
        return false;
    for (int i = 0; i < local; ++i)
        if (!tempi_node_registry_knows(tempi_peers.registry, i, local - 1))
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
        const int world = tempi_node_registry_rank(tempi_peers.registry, (unsigned)i);
        int there = MPI_UNDEFINED;
        if (tempi_lib.Group_translate_ranks(tempi_peers.world, 1, &world, group, &there) ==
                MPI_SUCCESS &&
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
    const int local = tempi_peers.job.local;
    int *ranks = malloc((size_t)local * sizeof *ranks);
    const bool good = ranks && tempi_lib.Group_incl(group, node_ranks_in(group, local, ranks),
                                                    ranks, out) == MPI_SUCCESS;
    free(ranks);
    tempi_lib.Group_free(&group);
    return good;
}
