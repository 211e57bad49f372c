/* kernels_avx512.c: x86-64-v4 with byte permutes: Ice Lake, Zen 4 and later. On earlier AVX-512
 * processors the wide registers gain little and lower the clock. */
#if defined(__x86_64__)
#include "pack/vector.h"
VECTOR_TARGET("avx2,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")
#define ISA        avx512
#define ISA_VECTOR 32
#define ISA_PERMUTE
#include "pack/kernels.inc"
VECTOR_TARGET_END
#endif
