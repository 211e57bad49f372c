/* What calls read that pass to the library because one like it did (shim/p2p/message.h:
 * tempi_message_is_left; packing.h), as far as it belongs to no type: in one cache line, as of a
 * message of 400 ns each further line takes some. */
#ifndef TEMPI_BASE_PASSING_H
#define TEMPI_BASE_PASSING_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tempi_passing_state {
    struct tempi_message_words *trials; /* of messages; NULL while they are off */
    bool trial_runs;                    /* one that this process leads */
    bool shared;                        /* several threads may call MPI: each has its own counter */
    int disabled;    /* threads that have disabled tempi, also those that have ended so */
    uint64_t passed; /* these calls: TEMPI_STAT_passed outside the threads' caches (stats.h) */
} tempi_passing_state;

extern tempi_passing_state tempi_passing;

/* Whether calls that complete requests have more to do than the library does. The shim has it
 * beside what else its entries read. */
typedef struct tempi_completing_state {
    int64_t records; /* requests that tempi follows (transfer/records.h) */
    int64_t trials;  /* trial_runs */
} tempi_completing_state;

extern tempi_completing_state *tempi_completing;

/* From now on several threads may call MPI; never reset. */
void tempi_threads_share(void);

static inline bool tempi_threads_are_shared(void)
{
    return __atomic_load_n(&tempi_passing.shared, __ATOMIC_RELAXED);
}

#endif
