/* How far a table is off, as told by the times of real work: the logarithm of measured over
 * predicted.
 *
 *   group    five samples make one, and its second smallest counts: other work on the machine only
 * adds time bounded  a sample counts for at most a factor of 4 either way, and so does a bias slow
 * a group moves the bias half of the way decays   to half while TEMPI_CORRECTION_HALF choices are
 * made without a group: the tables' word again
 */
#ifndef TEMPI_MODEL_BIAS_H
#define TEMPI_MODEL_BIAS_H

#include "base/lock.h"

#include <stdint.h>

enum { TEMPI_CORRECTION_GROUP = 5, TEMPI_CORRECTION_HALF = 1 << 14 };
#define TEMPI_CORRECTION_MOST 1.3862943611198906 /* ln 4 */
#define TEMPI_CORRECTION_STEP 0.02 /* a move that is less changes no choice worth having */

/* All zero: nothing is known. */
typedef struct tempi_correction {
    tempi_lock lock; /* taken by whoever feeds; readers do without */
    int32_t n;       /* samples of the group that is not complete */
    double group[TEMPI_CORRECTION_GROUP];
    double value; /* at `fed` */
    double told;  /* the last value that was worth telling */
    uint64_t fed; /* choices made when it was last set */
    uint64_t samples;
} tempi_correction;

/* The bias when `now` choices have been made. */
double tempi_correction_at(const tempi_correction *bias, uint64_t now);

/* One sample; one that is no number is none. True: the bias has moved since it was last told. Where
 * another thread is at it the sample is lost. */
bool tempi_correction_feed(tempi_correction *bias, double sample, uint64_t now);

#endif
