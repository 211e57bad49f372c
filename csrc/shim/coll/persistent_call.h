/* The arguments of a collective call that a persistent request keeps: numbers and datatypes of its
 * own, since the program may change its arrays and free its types. */
#ifndef TEMPI_SHIM_PERSISTENT_CALL_H
#define TEMPI_SHIM_PERSISTENT_CALL_H

#include "shim/coll/blocks.h"
#include "shim/coll/collective.h"

typedef struct tempi_persistent_call {
    tempi_collective call;
    tempi_bounce_argument buffers[2]; /* each start is made from these */
    MPI_Datatype type[2], *types[2];
    int ntypes[2];
    void *counts[2], *displacements[2];
    MPI_Request request; /* the program's: it moves nothing */
    tempi_edges one;     /* of a call with a root: the communicator's are those of the last call */
} tempi_persistent_call;

/* `out` and `in`: both sides of the call. NULL: out of memory, or the library refused a type. */
tempi_persistent_call *tempi_persistent_call_make(const tempi_collective *call,
                                                  const tempi_bounce_argument *buffers,
                                                  const tempi_blocks *out, const tempi_blocks *in);
void tempi_persistent_call_free(tempi_persistent_call *persistent);

#endif
