/* The blocks of a call that the library passes on: those of the processes on other nodes. The call
 * is the program's own function, so that a process without tempi matches it; but the other blocks
 * have count 0, and packed bytes stand for derived datatypes where tempi is expected to be faster
 * with messages of them (choose/choose.h), or where the library cannot read the memory, or delivers
 * blocks of one count in the wrong order (tempi_remote_reorder).
 *
 * MPI_Neighbor_alltoallw has displacements that are addresses, so there each block is packed or
 * not. In other functions all blocks of a side are, if that is better for most of their bytes. In
 * those with one count for all blocks (tempi_collective_is_packed_alone) no block stays here.
 *
 * In place the library gets MPI_IN_PLACE with the packed bytes of both directions in one buffer. */
#ifndef TEMPI_SHIM_REMOTE_BLOCKS_H
#define TEMPI_SHIM_REMOTE_BLOCKS_H

#include "shim/coll/blocks.h"
#include "shim/coll/collective.h"
#include "shim/coll/node_part.h"

/* Of one side. */
typedef struct tempi_remote_side {
    tempi_blocks blocks; /* those that are packed; `ops` are made at each start */
    tempi_edges packed;  /* their edges; owned */
    int64_t *places;     /* of these, in `bytes` */
    int64_t derived;     /* bytes that are not packed, of derived datatypes */
    MPI_Count *counts;   /* the call's arrays, which are owned */
    MPI_Aint *displacements;
    MPI_Datatype *types;
    MPI_Datatype type; /* of all entries, in functions without `types` */
    MPI_Count count;   /* of each of them, in functions without `counts` */
    const void *base;
    char *bytes; /* the packed ones */
} tempi_remote_side;

typedef struct tempi_remote {
    int function; /* TEMPI_FUNCTION_* */
    MPI_Comm comm;
    int root;
    int peers_begin; /* where the processes begin that have ranks in calls */
    bool in_place;
    bool reorders; /* what it receives: tempi_remote_reorder */
    tempi_remote_side out, in;
} tempi_remote;

typedef enum tempi_remote_form {
    TEMPI_REMOTE_BLOCKING,
    TEMPI_REMOTE_NONBLOCKING,
    TEMPI_REMOTE_PERSISTENT
} tempi_remote_form;

/* Chooses which blocks are packed, and makes the library's arguments. `out`, `in`: the sides of the
 * call as tempi_sides_of made them; `to`, `from`: their edges, divided; `remote`: all zero but for
 * `reorders`. Returns MPI_SUCCESS or an error that was raised; in any case tempi_remote_close is to
 * be called. */
int tempi_remote_open(const tempi_collective *call, const tempi_blocks *out,
                      const tempi_divided_edges *to, const tempi_blocks *in,
                      const tempi_divided_edges *from, tempi_remote *remote);
/* Whether tempi packs a block. */
static inline bool tempi_remote_packs(const tempi_remote *remote)
{
    return remote->out.packed.n > 0 || remote->in.packed.n > 0;
}

/* Where the library's nonblocking form delivers blocks of neighbours in the wrong order
 * (neighbor_order.h), and in a blocking call that form too: makes it right in what it receives.
 * Returns whether there was anything to do.
 */
bool tempi_remote_reorder(tempi_remote *remote);
/* Packs; before each call, or start. `outlives`: the program may free its types before the end.
 * This and the others return MPI_SUCCESS or an error that was raised. */
int tempi_remote_start(tempi_remote *remote, bool outlives);
/* The library's call; `request`: NULL for the blocking form. */
int tempi_remote_pass(const tempi_remote *remote, tempi_remote_form form, MPI_Request *request);
/* Unpacks what has come, unless `error` says that it has not. */
int tempi_remote_end(tempi_remote *remote, int error);
void tempi_remote_close(tempi_remote *remote);

#endif
