/* The datatype under which packed bytes go through the library: MPI_PACKED, contiguous.
 *
 * Open MPI (4.1.4 and 5.0.11) needs another one for messages of a process to itself. There a
 * message without gaps that is longer than a receive without gaps is written past the receive's
 * end, or, if it is short, cut without an error. With a gap on both sides the error is
 * MPI_ERR_TRUNCATE and nothing is overrun. So a message that names the own rank, and a matched
 * one, which names no rank, is one element of a type that has a gap of one byte before its last
 * one:
 *
 *   packed   |0 1 2 ... n-2 n-1|
 *   gapped   |0 1 2 ... n-2| - |n-1|
 *
 * Between processes of a node Open MPI 5.0.11 overruns in the same way above its eager limit of
 * 4 KiB. There a gap would cost each message its fast single copy, so a receive that is too
 * short is as unsafe as a receive into contiguous memory is without tempi. This includes receives
 * from MPI_ANY_SOURCE. */
#ifndef TEMPI_SHIM_WIRE_H
#define TEMPI_SHIM_WIRE_H

#include "pack/pack.h"
#include "shim/abi.h"

#if defined(OMPI_MAJOR_VERSION)
/* The gapped type for n bytes, or MPI_PACKED if it cannot be made. */
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

/* Converts all packed bytes to gapped ones; the memory holds one byte more. They remain valid as
 * packed ones. */
static inline void tempi_wire_out(const tempi_op *op)
{
    char *packed = op->packed;
    packed[op->n] = packed[op->n - 1];
}

/* Converts the `came` bytes of a gapped receive of op->n bytes to packed ones. */
static inline void tempi_wire_in(const tempi_op *op, int64_t came)
{
    char *packed = op->packed;
    if (came >= op->n)
        packed[op->n - 1] = packed[op->n];
}

#endif
