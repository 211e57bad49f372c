/* What each message reads that passes to the library because one like it did (shim/p2p/message.h:
 * tempi_message_is_left): in one cache line, as of a message of 400 ns each further line takes
 * some. */
#ifndef TEMPI_BASE_PASSING_H
#define TEMPI_BASE_PASSING_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tempi_passing_state {
    struct tempi_message_words *trials; /* of messages; NULL while they are off */
    bool trial_runs;                    /* one that this process leads */
    bool shared;                        /* several threads may call MPI: each has its own counter */
    int disabled;    /* threads that have disabled tempi, also those that have ended so */
    uint64_t passed; /* these messages (stats.h) */
} tempi_passing_state;

extern tempi_passing_state tempi_passing;

/* From now on several threads may call MPI. */
void tempi_threads_share(void);

#endif
