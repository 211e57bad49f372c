/* Multiplicative hashing (Knuth, The Art of Computer Programming, vol. 3, 6.4): the upper bits of a
 * product with 2^64 / golden ratio spread keys that differ little. */
#ifndef TEMPI_BASE_HASH_H
#define TEMPI_BASE_HASH_H

#include <stdint.h>

static inline uint64_t tempi_hash(uint64_t key)
{
    return key * 0x9E3779B97F4A7C15u;
}

/* The key's place among 2^bits. */
static inline uint64_t tempi_hash_home(uint64_t key, unsigned bits)
{
    return tempi_hash(key) >> (64 - bits);
}

/* The hash of one more word. Its upper bits depend on all words, and so do its lower ones. */
static inline uint64_t tempi_hash_mix(uint64_t hash, uint64_t word)
{
    hash = tempi_hash(hash ^ word);
    return hash ^ (hash >> 29);
}

#endif
