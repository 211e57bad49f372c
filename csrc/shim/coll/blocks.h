/* The blocks of one side of a collective call as operations: packed from the program's memory
 * directly or, in the memory of a device and for types that tempi cannot decode, through a staging
 * buffer. */
#ifndef TEMPI_SHIM_BLOCKS_H
#define TEMPI_SHIM_BLOCKS_H

#include "memory/kind.h"
#include "shim/bounce/bounce.h"
#include "shim/coll/edges.h"
#include "shim/p2p/message.h"

/* Packed bytes of a block in a staging buffer. */
typedef struct tempi_staged_block tempi_staged_block;

typedef struct tempi_blocks {
    MPI_Comm comm;
    const char *call; /* name of the MPI function */
    const tempi_bounce_argument *buffer;
    int entry; /* of the buffer, for every block; -1: each block has its own */
    const tempi_edges *edges;
    tempi_operation operation; /* TEMPI_OP_SEND or _RECV */
    bool gathers;              /* to one root */
    int in_place;              /* a process whose blocks are not moved: this one, in place; or -1 */
    bool outlives;             /* the call: the program may free the types before the end */
    bool stays;                /* a block of one allocation of a device stays there, at first */
    bool late;           /* such a block may be staged after the call, whose arguments are gone */
    tempi_op *ops;       /* by the order of the edges */
    int n;               /* of them, once they are described */
    int64_t bytes;       /* in all of them */
    tempi_memory memory; /* of the last block that stayed */
    int nresident;       /* of those that stayed */
    struct tempi_late_block *kept; /* for that: by the order of the edges; NULL until one stays */
    tempi_staged_block *staged;    /* NULL until one is needed */
    int nstaged;
} tempi_blocks;

/* An entry of the buffer's arrays. */
typedef struct tempi_block_entry {
    int64_t count;
    MPI_Datatype type;
    int64_t displacement; /* bytes, or elements */
    bool in_bytes;
} tempi_block_entry;

/* Without displacements, entries of one count follow each other. */
static inline tempi_block_entry tempi_block_entry_of(const tempi_bounce_argument *buffer, int i)
{
    tempi_block_entry out = {.count = buffer->counts.of ? tempi_number_at(buffer->counts, i)
                                                        : buffer->count,
                             .type = buffer->types ? buffer->types[i] : buffer->type,
                             .in_bytes = buffer->in_bytes};
    if (buffer->displacements.of)
        out.displacement = tempi_number_at(buffer->displacements, i);
    else if (buffer->times != TEMPI_ONCE)
        out.displacement = i * out.count;
    return out;
}

/* The entry of block k of the edges. */
static inline int tempi_block_number(const tempi_blocks *blocks, int k)
{
    return blocks->entry >= 0 ? blocks->entry : blocks->edges->block[k];
}

/* Raises MPI_ERR_NO_MEM, and returns it. */
static inline int tempi_blocks_no_memory(MPI_Comm comm)
{
    tempi_lib.Comm_call_errhandler(comm, MPI_ERR_NO_MEM);
    return MPI_ERR_NO_MEM;
}

/* Whether the library has to refuse an argument: no process has called it then. `all`: also one of
 * a block that stays in place. */
bool tempi_blocks_refusable(const tempi_blocks *blocks, bool all);
/* Whether one of the types is derived. */
bool tempi_blocks_derived(const tempi_blocks *blocks);
/* Whether no block is for another process than that one, or from it, by the counts. */
bool tempi_blocks_are_own(const tempi_blocks *blocks, int process);
/* Fills `ops`, and packs what goes through staging buffers. Returns MPI_SUCCESS or an error that
 * was raised. */
int tempi_blocks_describe(tempi_blocks *blocks);
/* Whether a described block is in device memory, and not staged. */
static inline bool tempi_block_is_resident(const tempi_op *op)
{
    return op->method != TEMPI_METHOD_HOST;
}

/* Stages those of n blocks from the k-th on that are; packs them if they are sent. The same
 * results. */
int tempi_blocks_stage(tempi_blocks *blocks, int k, int n);
/* Of those that were described, for that process, or from it. */
int64_t tempi_blocks_bytes_with(const tempi_blocks *blocks, int process);
/* Whether less than half as much comes from that process as these bytes to it: it has little to
 * pack meanwhile. */
bool tempi_blocks_are_one_way(const tempi_blocks *in, int process, int64_t bytes);
/* Lets described blocks outlive the call. */
void tempi_blocks_keep(tempi_blocks *blocks);
/* Unpacks received bytes from staging buffers; returns the same. */
int tempi_blocks_unpack(const tempi_blocks *blocks);
/* Frees the staging buffers; a second time it does nothing. */
void tempi_blocks_close(tempi_blocks *blocks);

#endif
