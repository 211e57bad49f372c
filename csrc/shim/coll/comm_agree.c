#include "shim/coll/comm_agree.h"

/* On an intercommunicator each group gets the other group's result; so a second call passes on
 * that, and what a process of the other group said comes back. */
static bool reduce(MPI_Comm comm, const tempi_node_comm *node, int mine, MPI_Op op, int *all)
{
    if (tempi_lib.Allreduce(&mine, all, 1, MPI_INT, op, comm) != MPI_SUCCESS)
        return false;
    if (!tempi_node_comm_is_inter(node))
        return true;
    if (op == MPI_MIN ? *all < mine : *all > mine)
        mine = *all;
    return tempi_lib.Allreduce(&mine, all, 1, MPI_INT, op, comm) == MPI_SUCCESS;
}

bool tempi_comm_all(MPI_Comm comm, const tempi_node_comm *node, bool mine)
{
    int all = 0;
    return reduce(comm, node, mine, MPI_MIN, &all) && all;
}

bool tempi_comm_any(MPI_Comm comm, const tempi_node_comm *node, bool mine)
{
    int any = 0;
    return reduce(comm, node, mine, MPI_MAX, &any) && any;
}

static bool broadcast(MPI_Comm comm, char *text, int n, int root)
{
    return tempi_lib.Bcast(text, n, MPI_CHAR, root, comm) == MPI_SUCCESS;
}

/* To the other group, from which it comes back to all of this one. */
bool tempi_comm_broadcast(MPI_Comm comm, const tempi_node_comm *node, char *text, int n)
{
    if (!tempi_node_comm_is_inter(node))
        return broadcast(comm, text, n, 0);
    const bool in_first_group = node->peers_begin > 0;
    const int leads = node->rank == (in_first_group ? 0 : node->peers) ? MPI_ROOT : MPI_PROC_NULL;
    return broadcast(comm, text, n, in_first_group ? leads : 0) &&
           broadcast(comm, text, n, in_first_group ? 0 : leads);
}
