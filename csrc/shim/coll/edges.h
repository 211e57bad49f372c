/* Which process each block of a collective call goes to, or comes from.
 *
 * A call passes blocks in the order of ranks, or of neighbours. Here they are grouped by process,
 * and those of one process are in the order in which it passes their other sides: the n-th block
 * from one process to another is the n-th of both. */
#ifndef TEMPI_SHIM_EDGES_H
#define TEMPI_SHIM_EDGES_H

#include "shim/abi.h"

/* Of one direction. */
typedef struct tempi_edges {
    int n;      /* blocks that have a process: those of MPI_PROC_NULL are left out */
    int *block; /* indices into the arguments of the call, grouped by process; owned */
    int *first; /* for each process, and one more: where its group begins */
} tempi_edges;

/* One block for each of n processes from that one on. False: out of memory. */
bool tempi_edges_all(int size, int begin, int n, tempi_edges *out);
/* No block; with memory for one. */
bool tempi_edges_none(int size, tempi_edges *out);
/* Makes of these one block, of that process. */
void tempi_edges_one(tempi_edges *edges, int size, int process);
/* The blocks of a neighbourhood collective on that communicator, which must have a topology; its
 * size must be right. False: out of memory, or there is no topology: nothing was allocated. */
bool tempi_edges_of_neighbors(MPI_Comm comm, int size, tempi_edges *out, tempi_edges *in);
void tempi_edges_free(tempi_edges *edges);
/* Those of the processes with a rank in a part, by that rank, and those of the others. `rank`: of
 * each of `size` processes, -1: none; in the order of the processes. False: out of memory. */
bool tempi_edges_split(const tempi_edges *edges, int size, const int *rank, tempi_edges *here,
                       tempi_edges *there);

static inline int tempi_edges_count(const tempi_edges *edges, int process)
{
    return edges->first[process + 1] - edges->first[process];
}

#endif
