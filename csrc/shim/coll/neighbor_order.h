/* In a periodic dimension of one or two processes both neighbours are one process: its first block
 * is the second one here (MPI-4.1, 8.6). Open MPI up to 5.0.11 delivers it as the first, in
 * nonblocking and persistent calls (open-mpi/ompi#14416); Intel MPI (2021.18) in blocking ones,
 * too; MPICH 4.0.2 in MPI_Ineighbor_alltoallv and -w. */
#ifndef TEMPI_SHIM_NEIGHBOR_ORDER_H
#define TEMPI_SHIM_NEIGHBOR_ORDER_H

#include "shim/abi.h"

#include <stdbool.h>

/* Whether the library's nonblocking form of TEMPI_FUNCTION_Neighbor_alltoall(v, w) delivers them
 * so. Tried once for each, with this process alone. */
bool tempi_neighbor_order_is_wrong(int function);
/* Whether it may deliver wrong blocks on that communicator: only if two neighbours of a process are
 * one. */
bool tempi_neighbor_order_is_wrong_on(MPI_Comm comm, int function);
/* Whether its blocking form does so, too. */
bool tempi_neighbor_order_is_wrong_in_blocking(int function);
/* The dimensions of a Cartesian communicator; 0: of any other one. */
int tempi_neighbor_dimensions(MPI_Comm comm);
/* Whether both neighbours in a dimension of such a communicator are one process. */
bool tempi_neighbors_are_one(MPI_Comm comm, int dimension);
/* The library does such a call, by the function of that name: counts it, and warns once, if its
 * blocks come wrong. */
void tempi_neighbor_order_left(MPI_Comm comm, int function, const char *name);

#endif
