/* kernels_neon.c: every arm64 processor. */
#if defined(__aarch64__)
#define ISA        neon
#define ISA_VECTOR 16
#include "pack/kernels.inc"
#endif
