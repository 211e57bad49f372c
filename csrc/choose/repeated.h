/* Messages that a program repeats. Finding their method again (the peer's class, the size's step,
 * the choice) takes 40 ns on each side, and longer where a message has evicted what it needs.
 * So a type remembers the last such message of each operation, and its method. One of many is
 * examined in full, as the peer's locality may have changed. */
#ifndef TEMPI_CHOOSE_REPEATED_H
#define TEMPI_CHOOSE_REPEATED_H

#include <stdbool.h>
#include <stdint.h>

/* One word, so that threads need no lock: 48 bits of the message, 6 bits for how often it was
 * examined, 4 bits for its method, 6 bits for how often it still passes. Two messages with the same
 * bits only cost time. */
typedef struct tempi_repeated {
    uint64_t word;
} tempi_repeated;

enum { TEMPI_REPEATED_EXAMINED = 32 };
enum { TEMPI_REPEATED_LEFT = 0x3F, TEMPI_REPEATED_METHOD_AT = 6, TEMPI_REPEATED_EXAMINED_AT = 10 };
/* Longer ones are examined always: it costs them little, and more happens between two of them. */
enum { TEMPI_REPEATED_LAST = 256 << 10, TEMPI_REPEATED_SHORT = 32 << 10 };

/* How many messages of so many bytes pass for each that is examined. */
static inline unsigned tempi_repeated_passes(int64_t bytes)
{
    return bytes < TEMPI_REPEATED_SHORT ? 63 : 15;
}

static inline uint64_t tempi_repeated_key(uint64_t comm, int rank, int64_t count)
{
    const uint64_t k = comm * 0x9E3779B97F4A7C15u + (uint64_t)count;
    return (k * 0xD6E8FEB86659FD93u + (uint64_t)(uint32_t)rank) * 0x9E3779B97F4A7C15u >> 16 << 16;
}

/* The method of a message that need not be examined, if it is one of `methods` (1 << method each);
 * else 0. */
static inline int tempi_repeated_pass(tempi_repeated *repeated, uint64_t key, unsigned methods)
{
    const uint64_t word = __atomic_load_n(&repeated->word, __ATOMIC_RELAXED);
    const unsigned method = (unsigned)(word >> TEMPI_REPEATED_METHOD_AT & 0xF);
    if ((word ^ key) >> 16 != 0 || (word & TEMPI_REPEATED_LEFT) == 0 || !(methods >> method & 1))
        return 0;
    __atomic_store_n(&repeated->word, word - 1, __ATOMIC_RELAXED);
    return (int)method;
}

/* The method may change at any time: the next message is examined. */
static inline void tempi_repeated_forget(tempi_repeated *repeated)
{
    __atomic_store_n(&repeated->word, 0, __ATOMIC_RELAXED);
}

/* How often the message of that key was examined. */
static inline uint64_t tempi_repeated_examined(uint64_t word, uint64_t key)
{
    return (word ^ key) >> 16 == 0 ? word >> TEMPI_REPEATED_EXAMINED_AT & 0x3F : 0;
}

/* How many have passed since one was examined. */
static inline unsigned tempi_repeated_passed(const tempi_repeated *repeated, uint64_t key,
                                             int64_t bytes)
{
    const uint64_t word = __atomic_load_n(&repeated->word, __ATOMIC_RELAXED);
    const bool passes = tempi_repeated_examined(word, key) == TEMPI_REPEATED_EXAMINED;
    return passes ? tempi_repeated_passes(bytes) - (unsigned)(word & TEMPI_REPEATED_LEFT) : 0;
}

/* The message was examined, and has that method. */
static inline void tempi_repeated_note(tempi_repeated *repeated, uint64_t key, int64_t bytes,
                                       int method)
{
    const uint64_t word = __atomic_load_n(&repeated->word, __ATOMIC_RELAXED);
    const uint64_t before = tempi_repeated_examined(word, key);
    const bool often = before + 1 >= TEMPI_REPEATED_EXAMINED;
    const uint64_t examined = often ? TEMPI_REPEATED_EXAMINED : before + 1,
                   passes = often ? tempi_repeated_passes(bytes) : 0;
    __atomic_store_n(&repeated->word,
                     key | examined << TEMPI_REPEATED_EXAMINED_AT |
                         (uint64_t)method << TEMPI_REPEATED_METHOD_AT | passes,
                     __ATOMIC_RELAXED);
}

#endif
