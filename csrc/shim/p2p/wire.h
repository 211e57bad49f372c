/* How the packed bytes of a message go through the library: as MPI_PACKED, one after another.
 *
 * On Open MPI (4.1.4 and 5.0.11) not to the process itself. There a message without gaps that is
 * longer than a receive without gaps is written past the receive's end, or, if it is short, cut
 * without an error; with a gap on both sides the error is MPI_ERR_TRUNCATE and nothing is overrun.
 * So a message that names the own rank, and a matched one, which names none, goes as one element of
 * a type that has a gap of a byte before its last one:
 *
 *   packed   |0 1 2 ... n-2 n-1|
 *   gapped   |0 1 2 ... n-2| - |n-1|
 *
 * Between processes of a node Open MPI 5.0.11 overruns in the same way above its eager limit of 4
 * KiB. There a gap would cost each message the single copy that makes it fast, so a receive that is
 * too short is as safe there as it is without tempi from memory without gaps: not at all. Receives
 * from MPI_ANY_SOURCE count as such.
 */
#ifndef TEMPI_SHIM_WIRE_H
#define TEMPI_SHIM_WIRE_H

#include "pack/pack.h"
#include "shim/abi.h"

#if defined(OMPI_MAJOR_VERSION)
/* The type for so many bytes, or MPI_PACKED where there can be none. */
MPI_Datatype tempi_wire_gapped(int64_t n);
void tempi_wire_stop(void);
#else
static inline MPI_Datatype tempi_wire_gapped(int64_t n)
{
    (void)n;
    return MPI_PACKED;
}

static inline void tempi_wire_stop(void)
{
}
#endif

/* Packed bytes, all of them, to gapped ones; the memory holds a byte more. They stay right as
 * packed ones. */
static inline void tempi_wire_out(const tempi_op *op)
{
    char *packed = op->packed;
    packed[op->n] = packed[op->n - 1];
}

/* The `came` bytes of a gapped receive of op->n to packed ones. */
static inline void tempi_wire_in(const tempi_op *op, int64_t came)
{
    char *packed = op->packed;
    if (came >= op->n)
        packed[op->n - 1] = packed[op->n];
}

#endif
