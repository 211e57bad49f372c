/* Collectives that pass blocks of derived datatypes, within a node. If all processes of the
 * communicator are on this node and run tempi, the blocks go through shared memory
 * (exchange/exchange.h) and the library is not called.
 *
 * All processes must decide alike, though each has types and sizes of its own:
 *
 *   MPI_Alltoallw, MPI_Neighbor_alltoallw   always: they are used for derived datatypes
 *   the others                              if one process had a derived datatype, or device memory
 *                                           that only tempi can send, when they last agreed on it:
 *                                           at the first call of the function on the communicator
 *                                           and, ever more rarely, at later ones */
#ifndef TEMPI_SHIM_COLLECTIVE_H
#define TEMPI_SHIM_COLLECTIVE_H

#include "base/fallback.h"
#include "shim/bounce/bounce.h"

extern bool tempi_collectives;

/* Whether this process may carry any collective: one load. */
static inline bool tempi_collective_possible(void)
{
    return __builtin_expect(tempi_collectives, 1);
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
    int root;
    const char *name; /* of the MPI function */
} tempi_collective;

/* buffers[0] is sent, buffers[1] received. False: the library must do the call. True: it is done,
 * *result is the error code for the program, which was raised. */
bool tempi_collective_carry(const tempi_collective *call, const tempi_bounce_argument *buffers,
                            int *result);

#endif
