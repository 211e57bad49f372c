/* Watches the rounds of a message between trials (message_trials.h): whether their time has changed
 * for good. It knows neither clock nor processes. */
#ifndef TEMPI_CHOOSE_MESSAGE_WATCH_H
#define TEMPI_CHOOSE_MESSAGE_WATCH_H

#include <stdbool.h>
#include <stdint.h>

/* Rounds that are timed together, or some more. */
enum { TEMPI_MESSAGE_WATCHED = 8 };

typedef struct tempi_message_watch {
    int64_t since;          /* nanoseconds: begin of these rounds; 0: not yet */
    uint32_t seen;          /* messages since then */
    int8_t fresh;           /* so many of the first times are still to come */
    int8_t changed;         /* in a row, that were slower, or faster if negative */
    int64_t typical;        /* the fastest one of the first times */
    int64_t before, recent; /* the last time; the shorter one of the last two; 0: none */
} tempi_message_watch;

/* Anew, after a trial. */
void tempi_message_watch_begin(tempi_message_watch *watch);
/* After a pause of it: what is known stays. */
void tempi_message_watch_resume(tempi_message_watch *watch);
/* Now, in nanoseconds, after about TEMPI_MESSAGE_WATCHED rounds. Whether the times have changed
 * twice in a row. */
bool tempi_message_watch_time(tempi_message_watch *watch, int64_t now);

#endif
