/* The correction of a table by timings of real work: the logarithm of measured over predicted.
 *
 *   group    five samples form one; its second smallest counts, because other work on the machine
 *            only adds time
 *   bounded  a sample counts for at most a factor of 4 either way, and so does a correction
 *   slow     a group moves the correction half of the way
 *   decays   to half over TEMPI_CORRECTION_HALF choices without a group: back to the tables
 */
#ifndef TEMPI_CHOOSE_CORRECTION_H
#define TEMPI_CHOOSE_CORRECTION_H

#include "base/lock.h"

#include <stdint.h>

enum { TEMPI_CORRECTION_GROUP = 5, TEMPI_CORRECTION_HALF = 1 << 14 };
#define TEMPI_CORRECTION_MOST 1.3862943611198906 /* ln 4 */
#define TEMPI_CORRECTION_STEP 0.02 /* a smaller move does not change a choice enough to matter */

/* All zero: no correction. */
typedef struct tempi_correction {
    tempi_lock lock; /* taken by writers; readers do without */
    int32_t n;       /* samples in the incomplete group */
    double group[TEMPI_CORRECTION_GROUP];
    double value;    /* the correction at time `fed` */
    double reported; /* the last reported value */
    uint64_t fed;    /* number of choices when `value` was last set */
    uint64_t samples;
} tempi_correction;

/* The correction when `now` choices have been made. */
double tempi_correction_at(const tempi_correction *correction, uint64_t now);

/* Adds one sample; NaN is ignored. True: the correction has moved since it was last reported. The
 * sample is dropped while another thread holds the lock. */
bool tempi_correction_feed(tempi_correction *correction, double sample, uint64_t now);

#endif
