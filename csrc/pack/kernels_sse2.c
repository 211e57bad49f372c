/* kernels_sse2.c: every x86-64 processor. */
#if defined(__x86_64__)
#define ISA        sse2
#define ISA_VECTOR 16
#include "pack/kernels.inc"
#endif
