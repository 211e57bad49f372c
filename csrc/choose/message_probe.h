/* A probe of another method of a message between trials (message_trials.h): some rounds of the
 * method in use, then some of the other one. It knows neither clock nor processes.
 *
 * Each is told by its second fastest round: some contain a pause of the program or other work, in
 * some programs every other one. */
#ifndef TEMPI_CHOOSE_MESSAGE_PROBE_H
#define TEMPI_CHOOSE_MESSAGE_PROBE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    TEMPI_MESSAGE_PROBE_COUNTED = 4, /* rounds of each method that count */
    /* And before them, which find things as the method before left them: of the one in use the
     * first one alone, in which the others come to know that it is on trial. */
    TEMPI_MESSAGE_PROBE_SKIPS_USED = 1,
    TEMPI_MESSAGE_PROBE_SKIPS_OTHER = 2,
    TEMPI_MESSAGE_PROBE_OTHER = TEMPI_MESSAGE_PROBE_SKIPS_OTHER + TEMPI_MESSAGE_PROBE_COUNTED
};

typedef struct tempi_message_probe {
    bool other;                               /* it has its turn */
    uint8_t rounds;                           /* of this turn */
    double turn[TEMPI_MESSAGE_PROBE_COUNTED]; /* times of those that count, in ascending order */
    double used, taken; /* nanoseconds of a round by the method in use, and at the end the other */
} tempi_message_probe;

/* Zero it first. A round of the method that has its turn took so long (nanoseconds). True: the
 * other method has its turn, or the probe is over, and `taken` is set. */
bool tempi_message_probe_round(tempi_message_probe *probe, int64_t took);
/* Whether a trial is worth its while. */
bool tempi_message_probe_promises(const tempi_message_probe *probe);
/* About how long the other method's rounds took more than as many of the one in use, nanoseconds.
 */
int64_t tempi_message_probe_lost(const tempi_message_probe *probe);

#endif
