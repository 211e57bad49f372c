/* vector.h: vector syntax and ISA targets for GCC and clang. */
#ifndef TEMPI_PACK_VECTOR_H
#define TEMPI_PACK_VECTOR_H

#define VECTOR_PRAGMA(text) _Pragma(#text)
#define VECTOR_LIST(...)    __VA_ARGS__

/* VECTOR_TARGET: compiles the following code for these extensions, until VECTOR_TARGET_END.
 * VECTOR_SHUFFLE: selects elements of two vectors side by side, by a list of indices in
 * parentheses. */
#if defined(__clang__)
#if defined(__x86_64__)
/* Include it before the first VECTOR_TARGET: its functions have targets of their own. */
#include <immintrin.h>
#endif
#define VECTOR_TARGET(extensions) \
    VECTOR_PRAGMA(clang attribute push(__attribute__((target(extensions))), apply_to = function))
#define VECTOR_TARGET_END                VECTOR_PRAGMA(clang attribute pop)
#define VECTOR_SHUFFLE(type, a, b, list) __builtin_shufflevector(a, b, VECTOR_LIST list)
#else
#define VECTOR_TARGET(extensions) VECTOR_PRAGMA(GCC target(extensions))
#define VECTOR_TARGET_END
/* GCC has __builtin_shufflevector only from 12 on. */
#define VECTOR_SHUFFLE(type, a, b, list) __builtin_shuffle(a, b, (type){VECTOR_LIST list})
#endif

#endif
