/* cuda/strided_copy.h: copy between two strided layouts on one device, in one launch: a loopback
 * message. */
#ifndef TEMPI_CUDA_STRIDED_COPY_H
#define TEMPI_CUDA_STRIDED_COPY_H

#include "cuda/plan.h"

/* Copies the first n packed bytes of src to the positions of the first n of dst, ordered after the
 * program's stream; returns when done. TEMPI_ERR_UNSUPPORTED: the two layouts have no common nest.
 * After any failure the caller can still pack and unpack. */
int tempi_cuda_move(int device, const tempi_side *src, const tempi_side *dst, int64_t n);

static inline tempi_side tempi_side_of(const tempi_op *op)
{
    return (tempi_side){op->layout, op->count, (uintptr_t)op->mem};
}

#endif
