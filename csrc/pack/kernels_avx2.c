/* kernels_avx2.c: x86-64-v3. */
#if defined(__x86_64__)
#include "pack/vector.h"
VECTOR_TARGET("avx2,bmi2")
#define ISA        avx2
#define ISA_VECTOR 32
#include "pack/kernels.inc"
VECTOR_TARGET_END
#endif
