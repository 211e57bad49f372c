/* Online trials of messages: measures on the program's own loop which method is the fastest for
 * messages of one shape, step of size and peer class: the library's, tempi's, or tempi's with the
 * packed bytes stored past the caches and received in memory that is never sent. (Between cores
 * without a common cache, Zen 4, 64 KiB: 34, 37 and 13 us.)
 *
 * The time that the peer takes is not visible in a call, but it is in the program's period: from
 * one round of these messages to the next. A round begins at the first send, or
 * the first receive, after a call that completed others: a burst of messages is one round. One
 * process, the first that had such a message, times its rounds and sets the method in a word of
 * shared memory, in turns of a few rounds; the other processes of the node follow that word, so
 * both sides of a message have the same method. Each method works with each other, so a late
 * follower costs time at most.
 *
 *   1. The usual choice (tables, or the built-in rule) has the first turn, then they alternate.
 *   2. A fast round of the turn counts, and none of its first ones: they find the caches and the
 *      peer as the method before left them.
 *   3. Another method wins if it is faster by the median of the cycles of turns; among near equals
 *      the library's. A method that is far behind is tried no longer.
 *   4. Later the trial is repeated, as machines and programs change: the more seldom, the more time
 *      the last one lost; sooner if the rounds change, or a probe, a few rounds of the method in
 *      use and of another one, shows that this has gained.
 *
 * A round contains more than these messages: other ones, and the program's own work. If they are
 * too small a part of it the trial ends after its first turn, and a method that seems to gain more
 * than they can take has only met a quiet moment. One trial at a time runs on a node: several would
 * disturb each other. */
#ifndef TEMPI_CHOOSE_MESSAGE_TRIALS_H
#define TEMPI_CHOOSE_MESSAGE_TRIALS_H

#include "base/passing.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Shared by the processes of a node; zero at first. */
enum { TEMPI_MESSAGE_KEYS = 2042, TEMPI_MESSAGE_WORDS = 2046 };
/* The index of a word that no key takes, for messages without one: it stays zero. */
enum { TEMPI_MESSAGE_NO_WORD = TEMPI_MESSAGE_WORDS - 1 };
typedef struct tempi_message_words {
    uint64_t running; /* whose trial, and until when nobody else may begin one; 0: none */
    int64_t rest;     /* nanoseconds: until then no trial is repeated */
    uint64_t ways[TEMPI_MESSAGE_WORDS]; /* the key's upper bits, and TEMPI_MESSAGE_* */
} tempi_message_words;

/* A word's lower bits: the method, and whether it is on trial. */
enum {
    TEMPI_MESSAGE_USUAL,
    TEMPI_MESSAGE_LIBRARY,
    TEMPI_MESSAGE_OWN,
    TEMPI_MESSAGE_STREAMED,
    TEMPI_MESSAGE_METHOD = 3,
    TEMPI_MESSAGE_ON_TRIAL = 4,
    TEMPI_MESSAGE_BITS = 3
};

/* Until then all messages have the usual choice. `own`: the index of this process among the node's.
 */
void tempi_message_trials_start(tempi_message_words *words, int own);
void tempi_message_trials_stop(void);

/* The calls that while a trial of this process runs have ended a round that began with a send, or
 * with a receive. */
extern uint32_t tempi_message_completions[2];
enum { TEMPI_MESSAGE_ROUNDS_OF_SENDS = 1, TEMPI_MESSAGE_ROUNDS_OF_RECEIVES = 2 };

/* After a call that completed messages, or before one that will. A blocking send does not end a
 * round that began with one: several in a row are a burst. */
static inline void tempi_message_completed(int rounds)
{
    if (!__atomic_load_n(&tempi_passing.trial_runs, __ATOMIC_RELAXED))
        return;
    for (int i = 0; i < 2; ++i)
        if (rounds >> i & 1)
            __atomic_fetch_add(&tempi_message_completions[i], 1, __ATOMIC_RELAXED);
}

static inline void tempi_message_waited(void)
{
    tempi_message_completed(TEMPI_MESSAGE_ROUNDS_OF_SENDS | TEMPI_MESSAGE_ROUNDS_OF_RECEIVES);
}

/* Names such messages: `shape` by its hash, `step` of packed size, class of the peer. */
uint64_t tempi_message_trial_key(uint32_t shape, int step, int class);

/* The places of a key, of which it takes the first free one. */
enum { TEMPI_MESSAGE_PLACES = 4 };
static inline uint64_t *tempi_message_place(uint64_t key, int i)
{
    return &tempi_passing.trials
                ->ways[(key >> TEMPI_MESSAGE_BITS) % TEMPI_MESSAGE_KEYS + (unsigned)i];
}

/* The key's word; NULL: it has none yet. */
static inline uint64_t *tempi_message_word(uint64_t key)
{
    for (int i = 0; i < TEMPI_MESSAGE_PLACES; ++i) {
        uint64_t *word = tempi_message_place(key, i);
        if ((__atomic_load_n(word, __ATOMIC_RELAXED) ^ key) >> TEMPI_MESSAGE_BITS == 0)
            return word;
    }
    return NULL;
}

/* The method in a word, which may be NULL: TEMPI_MESSAGE_*. */
static inline int tempi_message_method(const uint64_t *word)
{
    return word ? (int)(__atomic_load_n(word, __ATOMIC_RELAXED) & TEMPI_MESSAGE_METHOD)
                : TEMPI_MESSAGE_USUAL;
}

/* The same for a choice that is kept: a method on trial is none. */
int tempi_message_settled(const uint64_t *word);

/* Whether a message with that method still has it: false if the word at that index has another one,
 * or is on trial. */
__attribute__((always_inline)) static inline bool tempi_message_method_is(unsigned index,
                                                                          unsigned method)
{
    if (!tempi_passing.trials)
        return true;
    const uint64_t word = __atomic_load_n(&tempi_passing.trials->ways[index], __ATOMIC_RELAXED);
    const unsigned now = (unsigned)word & (TEMPI_MESSAGE_METHOD | TEMPI_MESSAGE_ON_TRIAL);
    return now == TEMPI_MESSAGE_USUAL || now == method;
}

typedef struct tempi_message_post {
    uint64_t key;
    uint64_t *word; /* the key's, or NULL */
    bool receives;
    bool streams;      /* whether TEMPI_MESSAGE_STREAMED is tried */
    bool repeats;      /* the last ones of the type were the same (repeated.h) */
    uint32_t messages; /* like it since the last one was posted here, with it */
    int64_t most;      /* nanoseconds that it usually takes, or fewer */
    uint8_t usual;     /* the method of the word, or the choice without a trial */
} tempi_message_post;

/* A message is about to be posted. Returns its method. */
int tempi_message_trial_post(const tempi_message_post *post);
/* Called with each message that is examined, posted or not: ends trials that do not go on. */
void tempi_message_trial_look(void);

/* For tests: nanoseconds, instead of the clock; NULL: use the clock. */
void tempi_message_trial_pretend(const int64_t *now);

#endif
