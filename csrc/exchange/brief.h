/* A short message in the line of the flag that announces it: the receiver, which waits for that
 * line, fetches no other one. The message lies in the ring, too, where the receiver finds it if a
 * later one has taken the place here before it has looked.
 *
 * Each word is stored after `at` was cleared and loaded before `at` is looked at again, so one that
 * a later message has overwritten is noticed. */
#ifndef TEMPI_EXCHANGE_BRIEF_H
#define TEMPI_EXCHANGE_BRIEF_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    TEMPI_BRIEF_WORDS = 5, /* the rest of a line; a second one gained nothing (Zen 3) */
    TEMPI_BRIEF_MOST = TEMPI_BRIEF_WORDS * 8 /* bytes */
};

/* Zero at first. Only the sender writes it. */
typedef struct tempi_brief {
    uint64_t at;   /* place of the message in the ring, plus 1; 0: none is here */
    uint64_t call; /* and its bytes, in the lowest 8 bits */
    uint64_t words[TEMPI_BRIEF_WORDS];
} tempi_brief;

static inline uint64_t tempi_brief_call(uint64_t call, int64_t bytes)
{
    return call << 8 | (uint64_t)bytes;
}

/* At most TEMPI_BRIEF_MOST bytes. Before the ring passes on the message at that place. */
static inline void tempi_brief_write(tempi_brief *to, uint64_t place, uint64_t call,
                                     const char *data, int64_t bytes)
{
    __atomic_store_n(&to->at, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&to->call, tempi_brief_call(call, bytes), __ATOMIC_RELEASE);
    for (int64_t i = 0; i * 8 < bytes; ++i) {
        const int64_t left = bytes - i * 8;
        uint64_t word = 0;
        memcpy(&word, data + i * 8, left < 8 ? (size_t)left : 8);
        __atomic_store_n(&to->words[i], word, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&to->at, place + 1, __ATOMIC_RELEASE);
}

/* Copies the message at that place, of that call and length, into TEMPI_BRIEF_MOST bytes. False: it
 * is not here. */
static inline bool tempi_brief_read(const tempi_brief *from, uint64_t place, uint64_t call,
                                    int64_t bytes, char *data)
{
    if (__atomic_load_n(&from->at, __ATOMIC_ACQUIRE) != place + 1 ||
        __atomic_load_n(&from->call, __ATOMIC_ACQUIRE) != tempi_brief_call(call, bytes))
        return false;
    for (int64_t i = 0; i * 8 < bytes; ++i) {
        const uint64_t word = __atomic_load_n(&from->words[i], __ATOMIC_ACQUIRE);
        memcpy(data + i * 8, &word, 8);
    }
    return __atomic_load_n(&from->at, __ATOMIC_RELAXED) == place + 1;
}

#endif
