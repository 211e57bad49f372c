/* kernels_avx512.c: x86-64-v4 and byte permutes: Ice Lake, Zen 4 and later. On the AVX-512
 * processors before them the wide registers gain little and lower the clock. */
#if defined(__x86_64__)
#include "pack/vector.h"
VECTOR_TARGET("avx2,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")
#define LEVEL        avx512
#define LEVEL_VECTOR 32
#define LEVEL_COMB
#include "pack/kernels.inc"
VECTOR_TARGET_END
#endif
