#include "shim/coll/node_part.h"
#include "shim/comm/peer_agree.h"

#include <stdlib.h>

enum { TAG = 29017 }; /* of MPI_Comm_create_group: any, but the same in all processes */

/* Ranks of the part, by those of the whole. */
static bool number(tempi_node_part *part, MPI_Comm whole, const tempi_node_comm *node)
{
    MPI_Group group, own;
    bool good = false;
    if (tempi_lib.Comm_group(whole, &group) != MPI_SUCCESS)
        return false;
    if (tempi_lib.Comm_group(part->comm, &own) == MPI_SUCCESS) {
        int *all = malloc((size_t)node->size * sizeof *all);
        for (int i = 0; all && i < node->size; ++i)
            all[i] = i;
        good = all && tempi_lib.Group_translate_ranks(group, node->size, all, own, part->rank) ==
                          MPI_SUCCESS;
        free(all);
        tempi_lib.Group_free(&own);
    }
    for (int i = 0; i < node->size; ++i)
        part->rank[i] = good && part->rank[i] >= 0 ? part->rank[i] : -1;
    tempi_lib.Group_free(&group);
    return good;
}

static void free_comm(tempi_node_part *part)
{
    if (part->comm != MPI_COMM_SELF)
        tempi_lib.Comm_free(&part->comm);
    part->comm = MPI_COMM_SELF;
}

/* The communicator of the processes of this node, if they can exchange blocks. */
static void gather(tempi_node_part *part, MPI_Comm whole)
{
    MPI_Group group;
    int size = 1;
    if (!tempi_peer_node_group(whole, &group))
        return;
    if (tempi_lib.Group_size(group, &size) != MPI_SUCCESS || size < 2 ||
        tempi_lib.Comm_create_group(whole, group, TAG, &part->comm) != MPI_SUCCESS)
        part->comm = MPI_COMM_SELF;
    tempi_lib.Group_free(&group);
    if (part->comm == MPI_COMM_SELF)
        return;
    part->node = tempi_node_comm_of(part->comm);
    if (!part->node || !part->node->together ||
        !tempi_node_comm_connect(part->comm, part->node, TEMPI_CONNECT_RINGS))
        free_comm(part);
}

/* Nobody is on this node. */
static bool count_out(tempi_node_part *part, const tempi_node_comm *node)
{
    for (int i = 0; i < node->size; ++i)
        part->rank[i] = -1;
    return true;
}

/* `comm`: of the whole, or MPI_COMM_NULL if nobody else takes part. */
static tempi_node_part *make(MPI_Comm comm, const tempi_node_comm *whole)
{
    tempi_node_part *part = calloc(1, sizeof *part);
    if (!part)
        return NULL;
    part->comm = MPI_COMM_SELF;
    part->rank = malloc((size_t)whole->size * sizeof *part->rank);
    if (comm != MPI_COMM_NULL)
        gather(part, comm);
    part->node = tempi_node_comm_of(part->comm);
    if (part->rank && part->node && part->node->together &&
        (comm != MPI_COMM_NULL ? number(part, comm, whole) : count_out(part, whole)))
        return part;
    tempi_node_part_close(part, true);
    return NULL;
}

tempi_node_part *tempi_node_part_of(MPI_Comm comm, tempi_node_comm *whole)
{
    if (!whole->part)
        whole->part = make(tempi_node_comm_is_inter(whole) ? MPI_COMM_NULL : comm, whole);
    return whole->part;
}

tempi_node_part *tempi_node_part_alone(tempi_node_comm *whole)
{
    if (!whole->alone)
        whole->alone = make(MPI_COMM_NULL, whole);
    return whole->alone;
}

static void free_edges(tempi_divided_edges *split)
{
    tempi_edges_free(&split->here);
    tempi_edges_free(&split->there);
    free(split->process);
    *split = (tempi_divided_edges){.known = false};
}

/* Once: a call must not cost more in a large communicator than its blocks do. */
static bool divide(const tempi_edges *edges, int size, const int *rank, tempi_divided_edges *out)
{
    if (!tempi_edges_split(edges, size, rank, &out->here, &out->there))
        return false;
    out->known = true;
    out->process = malloc(((size_t)out->there.n + 1) * sizeof *out->process);
    for (int i = 0; out->process && i < size; ++i)
        for (int k = out->there.first[i]; k < out->there.first[i + 1]; ++k)
            out->process[k] = i;
    if (!out->process)
        free_edges(out);
    return out->known;
}

const tempi_divided_edges *tempi_node_part_edges(tempi_node_part *part,
                                                 const tempi_node_comm *whole,
                                                 const tempi_edges *edges)
{
    tempi_divided_edges *split = edges == &whole->out    ? &part->out
                                 : edges == &whole->in   ? &part->in
                                 : edges == &whole->one  ? &part->one
                                 : edges == &whole->none ? &part->none
                                                         : &part->all;
    if (edges == &whole->one) /* its process changes from call to call */
        free_edges(split);
    return split->known || divide(edges, whole->size, part->rank, split) ? split : NULL;
}

void tempi_node_part_close(tempi_node_part *part, bool frees)
{
    if (!part)
        return;
    if (frees)
        free_comm(part);
    free_edges(&part->all);
    free_edges(&part->out);
    free_edges(&part->in);
    free_edges(&part->one);
    free_edges(&part->none);
    free(part->rank);
    free(part);
}
