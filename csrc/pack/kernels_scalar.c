/* kernels_scalar.c: plain C, for any processor. */
#define ISA        scalar
#define ISA_VECTOR 16
#include "pack/kernels.inc"
