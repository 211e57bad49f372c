/* kernels_scalar.c: plain C, for any processor. */
#define LEVEL        scalar
#define LEVEL_VECTOR 16
#include "pack/kernels.inc"
