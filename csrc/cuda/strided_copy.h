/* cuda/strided_copy.h: strided memory to strided memory of one device, in one launch: a message to
 * oneself. */
#ifndef TEMPI_CUDA_MOVE_H
#define TEMPI_CUDA_MOVE_H

#include "cuda/plan.h"

/* The first n packed bytes of src to where the first n of dst belong; ordered after the program's
 * stream, returns when they are there. TEMPI_ERR_UNSUPPORTED: the two layouts cannot be walked
 * together. After any failure packing and unpacking is still as good as before. */
int tempi_cuda_move(int device, const tempi_side *src, const tempi_side *dst, int64_t n);

static inline tempi_side tempi_side_of(const tempi_op *op)
{
    return (tempi_side){op->layout, op->count, (uintptr_t)op->mem};
}

#endif
