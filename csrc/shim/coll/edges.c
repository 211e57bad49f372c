#include "shim/coll/edges.h"

#include <stdlib.h>
#include <string.h>

void tempi_edges_free(tempi_edges *edges)
{
    free(edges->block);
    free(edges->first);
    *edges = (tempi_edges){0};
}

static bool allocate(int blocks, int size, tempi_edges *out)
{
    *out = (tempi_edges){.block = malloc(((size_t)blocks + 1) * sizeof *out->block),
                         .first = calloc((size_t)size + 1, sizeof *out->first)};
    if (out->block && out->first)
        return true;
    tempi_edges_free(out);
    return false;
}

bool tempi_edges_all(int size, int begin, int n, tempi_edges *out)
{
    if (!allocate(n, size, out))
        return false;
    for (int k = 0; k < n; ++k)
        out->block[k] = k;
    for (int i = 0; i <= size; ++i)
        out->first[i] = i < begin ? 0 : i < begin + n ? i - begin : n;
    out->n = n;
    return true;
}

bool tempi_edges_none(int size, tempi_edges *out)
{
    return allocate(0, size, out);
}

void tempi_edges_one(tempi_edges *edges, int size, int process)
{
    edges->n = 1;
    edges->block[0] = 0;
    for (int i = 0; i <= size; ++i)
        edges->first[i] = i > process;
}

bool tempi_edges_split(const tempi_edges *edges, int size, const int *rank, tempi_edges *here,
                       tempi_edges *there)
{
    int members = 0;
    if (!allocate(edges->n, size, here))
        return false;
    if (!allocate(edges->n, size, there)) {
        tempi_edges_free(here);
        return false;
    }
    for (int i = 0; i < size; ++i) {
        tempi_edges *to = rank[i] >= 0 ? here : there;
        for (int k = edges->first[i]; k < edges->first[i + 1]; ++k)
            to->block[to->n++] = edges->block[k];
        if (rank[i] >= 0)
            here->first[++members] = here->n;
        there->first[i + 1] = there->n;
    }
    return true;
}

/* Neighbours of one direction; `order`: block number k of them all is block order[k] of the call.
 */
typedef struct neighbors {
    int n;
    int *ranks, *order; /* one block of memory */
} neighbors;

static bool neighbors_allocate(int n, neighbors *out)
{
    *out = (neighbors){.n = n, .ranks = malloc((2 * (size_t)n + 1) * sizeof *out->ranks)};
    if (!out->ranks)
        return false;
    out->order = out->ranks + n;
    for (int i = 0; i < n; ++i)
        out->order[i] = i;
    return true;
}

/* A counting sort that keeps the order within a process. */
static bool group(const neighbors *from, int size, tempi_edges *out)
{
    if (!allocate(from->n, size, out))
        return false;
    for (int i = 0; i < from->n; ++i)
        if (from->ranks[i] >= 0 && from->ranks[i] < size)
            ++out->first[from->ranks[i] + 1];
    for (int i = 0; i < size; ++i)
        out->first[i + 1] += out->first[i];
    out->n = out->first[size];
    int *next = malloc(((size_t)size + 1) * sizeof *next);
    if (!next) {
        tempi_edges_free(out);
        return false;
    }
    memcpy(next, out->first, (size_t)size * sizeof *next);
    for (int k = 0; k < from->n; ++k) {
        const int rank = from->ranks[from->order[k]];
        if (rank >= 0 && rank < size)
            out->block[next[rank]++] = from->order[k];
    }
    free(next);
    return true;
}

/* ---- the topologies -------------------------------------------------------------------------- */

/* MPI-4.1, 8.6: for each dimension first the neighbour in negative, then that in positive
 * direction. What goes to the one comes in there from the other: in a periodic dimension of one or
 * two ranks, where both are one process, its first block is the second one here. */
static bool cartesian(MPI_Comm comm, neighbors *out, neighbors *in)
{
    int dims;
    if (tempi_lib.Cartdim_get(comm, &dims) != MPI_SUCCESS || !neighbors_allocate(2 * dims, out))
        return false;
    if (!neighbors_allocate(2 * dims, in)) {
        free(out->ranks);
        return false;
    }
    for (int d = 0; d < dims; ++d) {
        int before = MPI_PROC_NULL, after = MPI_PROC_NULL;
        (void)tempi_lib.Cart_shift(comm, d, 1, &before, &after);
        out->ranks[2 * d] = in->ranks[2 * d] = before;
        out->ranks[2 * d + 1] = in->ranks[2 * d + 1] = after;
        in->order[2 * d] = 2 * d + 1;
        in->order[2 * d + 1] = 2 * d;
    }
    return true;
}

static bool graph(MPI_Comm comm, neighbors *out, neighbors *in)
{
    int rank, n;
    if (tempi_lib.Comm_rank(comm, &rank) != MPI_SUCCESS ||
        tempi_lib.Graph_neighbors_count(comm, rank, &n) != MPI_SUCCESS ||
        !neighbors_allocate(n, out))
        return false;
    if (!neighbors_allocate(n, in)) {
        free(out->ranks);
        return false;
    }
    (void)tempi_lib.Graph_neighbors(comm, rank, n, out->ranks);
    memcpy(in->ranks, out->ranks, (size_t)n * sizeof *in->ranks);
    return true;
}

/* MPICH writes weights if the graph has them, so memory is passed for them. */
static bool distributed(MPI_Comm comm, neighbors *out, neighbors *in)
{
    int nin, nout, weighted;
    if (tempi_lib.Dist_graph_neighbors_count(comm, &nin, &nout, &weighted) != MPI_SUCCESS ||
        !neighbors_allocate(nout, out))
        return false;
    if (!neighbors_allocate(nin, in)) {
        free(out->ranks);
        return false;
    }
    int *weights = malloc(((size_t)nin + (size_t)nout + 1) * sizeof *weights);
    const bool good = weights &&
                      tempi_lib.Dist_graph_neighbors(comm, nin, in->ranks, weights, nout,
                                                     out->ranks, weights + nin) == MPI_SUCCESS;
    free(weights);
    if (!good) {
        free(out->ranks);
        free(in->ranks);
    }
    return good;
}

bool tempi_edges_of_neighbors(MPI_Comm comm, int size, tempi_edges *out, tempi_edges *in)
{
    int kind = MPI_UNDEFINED;
    neighbors to, from;
    bool found = false;
    if (tempi_lib.Topo_test(comm, &kind) != MPI_SUCCESS)
        return false;
    if (kind == MPI_CART)
        found = cartesian(comm, &to, &from);
    else if (kind == MPI_GRAPH)
        found = graph(comm, &to, &from);
    else if (kind == MPI_DIST_GRAPH)
        found = distributed(comm, &to, &from);
    if (!found)
        return false;
    found = group(&to, size, out);
    if (found && !group(&from, size, in)) {
        tempi_edges_free(out);
        found = false;
    }
    free(to.ranks);
    free(from.ranks);
    return found;
}
