/* Where no calibration tells which way of MPI_Pack or MPI_Unpack is faster, it is measured on the program's own calls.
 *
 * Both are local and move the same bytes whichever way they go, so the first calls of a type and step of size can go
 * both ways in turns:
 *
 * 1. The built-in rule's way once, uncounted: it may be the first to touch its pages.
 * 2. The two ways in turns, until one is far behind after its first turn, or both had enough. A turn of short calls is
 *    several in a row, of which the first finds what the other way left in the caches and is not counted.
 * 3. The faster one is kept in the type's choices; between equals the rule's.
 *
 * A message cannot be chosen so: how long its other side takes is not seen. */
#ifndef TEMPI_MODEL_AUTOTUNE_H
#define TEMPI_MODEL_AUTOTUNE_H

#include "model/model.h"

enum { TEMPI_WAY_LIBRARY, TEMPI_WAY_OWN, TEMPI_WAYS };

/* The trial of one step of size. */
typedef struct tempi_trial {
    tempi_choices *choices;
    int busy; /* one call at a time is timed; the others go the rule's way */
    int8_t step;
    bool rule;
    uint8_t way;     /* whose turn it is */
    uint8_t left;    /* calls of this turn that are to come */
    bool uncounted;  /* the next one */
    uint8_t calls[TEMPI_WAYS];
    double best[TEMPI_WAYS];
} tempi_trial;

/* Trials under way of one type and operation. */
enum { TEMPI_TRIALS = 4 };
typedef struct tempi_trials {
    tempi_trial trial[TEMPI_TRIALS];
} tempi_trials;

/* A call that is being timed; trial == NULL: it is not. */
typedef struct tempi_sample {
    tempi_trial *trial;
    int way;
    double begun;
} tempi_sample;

/* Whether tempi is to act on a call of that size; `rule`: whether the built-in rule would. Starts *sample. */
bool tempi_autotune_acts(tempi_trials *trials, tempi_choices *choices, int64_t bytes, bool rule, tempi_sample *sample);

void tempi_autotune_note(tempi_sample *sample, bool counts);

/* For tests: seconds that a call takes by each way, instead of what the clock says; NULL: the clock. */
void tempi_autotune_pretend(const double *seconds);

/* Ends what was started; `counts`: the call succeeded and did all of its work. */
static inline void tempi_autotune_end(tempi_sample *sample, bool counts)
{
    if (sample->trial)
        tempi_autotune_note(sample, counts);
}

#endif
