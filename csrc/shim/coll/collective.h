/* Collectives with a datatype for each block, within a node: MPI_Alltoallw and
 * MPI_Neighbor_alltoallw. If all processes of the communicator are on this node and run tempi, the
 * blocks go through shared memory (exchange/exchange.h) and the library is not called.
 *
 * The decision depends on the communicator and the function alone, which all processes have in
 * common: not on types or sizes, which each process has its own of. These two functions are used
 * for derived datatypes; in others one side often has none, and must not pay. */
#ifndef TEMPI_SHIM_COLLECTIVE_H
#define TEMPI_SHIM_COLLECTIVE_H

#include "shim/bounce/bounce.h"

extern bool tempi_collectives;

/* Whether a process may carry any collective: one load. */
static inline bool tempi_collective_possible(void)
{
    return __builtin_expect(tempi_collectives, 1);
}

/* After MPI_Init, and before the library's finalize. */
void tempi_collective_start(void);
void tempi_collective_stop(void);
void tempi_collective_clear(void);

/* buffers[0] is sent, buffers[1] received, with counts, displacements in bytes and types.
 * False: the library must do the call. True: it is done, *result is the error code for the program,
 * which was raised. */
bool tempi_collective_carry(MPI_Comm comm, const tempi_bounce_argument *buffers, const char *call,
                            int *result);

#endif
