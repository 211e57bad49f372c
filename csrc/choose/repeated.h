/* Messages that a program repeats. Finding their method again (the peer's class, the size's step,
 * the choice) takes 40 ns on each side, and longer where a message has evicted what it needs.
 * So a type remembers the last such message of each operation, and its method. One of many is
 * examined in full, as the peer's locality may have changed. */
#ifndef TEMPI_CHOOSE_REPEATED_H
#define TEMPI_CHOOSE_REPEATED_H

#include "base/hash.h"
#include "choose/message_trials.h"

#include <stdbool.h>
#include <stdint.h>

/* One word, so that threads need no lock: 35 bits of the message, 11 bits for the index of the word
 * of its trials, 6 bits for how often it was examined, 4 bits for its method, 8 bits for how often
 * it still passes. Two messages with the same bits only cost time. */
typedef struct tempi_repeated {
    uint64_t word;
} tempi_repeated;

enum { TEMPI_REPEATED_EXAMINED = 32 };
enum {
    TEMPI_REPEATED_LEFT = 0xFF,
    TEMPI_REPEATED_METHOD_AT = 8,
    TEMPI_REPEATED_EXAMINED_AT = 12,
    TEMPI_REPEATED_WORD_AT = 18,
    TEMPI_REPEATED_KEY_AT = 29,
    TEMPI_REPEATED_WORD = (1 << (TEMPI_REPEATED_KEY_AT - TEMPI_REPEATED_WORD_AT)) - 1
};
_Static_assert(TEMPI_MESSAGE_NO_WORD <= (int)TEMPI_REPEATED_WORD, "an index of a word has 11 bits");
/* How many messages of so many bytes pass for each that is examined. Examining one takes 0.3 to 1
 * us on each side, as its code has left the inner caches; so many that follow each other pass
 * within 0.1 to 2 ms, up to 1 MiB. */
static inline unsigned tempi_repeated_passes(int64_t bytes)
{
    if (bytes < 16 << 10)
        return 255;
    if (bytes < 64 << 10)
        return 63;
    return bytes < 256 << 10 ? 15 : 3;
}

static inline uint64_t tempi_repeated_key(uint64_t comm, int rank, int64_t count)
{
    const uint64_t mixed = tempi_hash(comm ^ (uint64_t)(uint32_t)rank << 40) ^
                           (uint64_t)count * 0xC2B2AE3D27D4EB4Fu; /* another odd number */
    return mixed >> TEMPI_REPEATED_KEY_AT << TEMPI_REPEATED_KEY_AT;
}

/* The method of a message that need not be examined, if it is one of `methods` (1 << method each)
 * and no trial is changing it; else 0. */
__attribute__((always_inline)) static inline int tempi_repeated_pass(tempi_repeated *repeated,
                                                                     uint64_t key, unsigned methods)
{
    const uint64_t word = __atomic_load_n(&repeated->word, __ATOMIC_RELAXED);
    const unsigned method = (unsigned)(word >> TEMPI_REPEATED_METHOD_AT & 0xF);
    const unsigned index = (unsigned)(word >> TEMPI_REPEATED_WORD_AT & TEMPI_REPEATED_WORD);
    if ((word ^ key) >> TEMPI_REPEATED_KEY_AT != 0 || (word & TEMPI_REPEATED_LEFT) == 0 ||
        !(methods >> method & 1) || !tempi_message_method_is(index, method))
        return 0;
    __atomic_store_n(&repeated->word, word - 1, __ATOMIC_RELAXED);
    return (int)method;
}

/* How often the message of that key was examined. */
static inline uint64_t tempi_repeated_examined(uint64_t word, uint64_t key)
{
    return (word ^ key) >> TEMPI_REPEATED_KEY_AT == 0 ? word >> TEMPI_REPEATED_EXAMINED_AT & 0x3F
                                                      : 0;
}

/* Whether the message of that key was examined often enough to pass. */
static inline bool tempi_repeated_passes_by(const tempi_repeated *repeated, uint64_t key)
{
    const uint64_t word = __atomic_load_n(&repeated->word, __ATOMIC_RELAXED);
    return tempi_repeated_examined(word, key) == TEMPI_REPEATED_EXAMINED;
}

/* How many have passed since one was examined. */
static inline unsigned tempi_repeated_passed(const tempi_repeated *repeated, uint64_t key,
                                             int64_t bytes)
{
    const uint64_t word = __atomic_load_n(&repeated->word, __ATOMIC_RELAXED);
    const unsigned left = (unsigned)(word & TEMPI_REPEATED_LEFT),
                   passes = tempi_repeated_passes(bytes);
    return tempi_repeated_passes_by(repeated, key) && left < passes ? passes - left : 0;
}

/* The message was examined, and has that method; `index`: of the word of its trials. */
static inline void tempi_repeated_note(tempi_repeated *repeated, uint64_t key, int64_t bytes,
                                       unsigned index, int method)
{
    const uint64_t word = __atomic_load_n(&repeated->word, __ATOMIC_RELAXED);
    const uint64_t before = tempi_repeated_examined(word, key);
    const bool often = before + 1 >= TEMPI_REPEATED_EXAMINED;
    const uint64_t examined = often ? TEMPI_REPEATED_EXAMINED : before + 1,
                   passes = often ? tempi_repeated_passes(bytes) : 0;
    __atomic_store_n(&repeated->word,
                     key | (uint64_t)index << TEMPI_REPEATED_WORD_AT |
                         examined << TEMPI_REPEATED_EXAMINED_AT |
                         (uint64_t)method << TEMPI_REPEATED_METHOD_AT | passes,
                     __ATOMIC_RELAXED);
}

#endif
