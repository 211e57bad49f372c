/* Which way of MPI_Pack or MPI_Unpack is faster is measured on the program's own calls.
 *
 * Both are local and move the same bytes whichever way they go, so the first calls of a type and
 * step of size can go both ways in turns. Tables, or else the built-in rule, give the first guess:
 *
 * 1. The guessed way once, uncounted: it may be the first to touch its pages.
 * 2. The two ways in turns, until one is far behind after its first turn, or both had enough. A
 * turn of short calls is several in a row, of which the first finds what the other way left in the
 * caches and is not counted.
 * 3. The faster one is kept in the type's choices; between equals the guessed one.
 *
 * A message cannot be chosen so: how long its other side takes is not seen. */
#ifndef TEMPI_MODEL_AUTOTUNE_H
#define TEMPI_MODEL_AUTOTUNE_H

#include "choose/model.h"

enum { TEMPI_WAY_LIBRARY, TEMPI_WAY_OWN, TEMPI_WAYS };

/* The trial of one step of size. */
typedef struct tempi_trial {
    tempi_choices *choices;
    int busy; /* one call at a time is timed; the others go the guessed way */
    int8_t step;
    bool guess;
    uint8_t way;    /* whose turn it is */
    uint8_t left;   /* calls of this turn that are to come */
    bool uncounted; /* the next one */
    uint8_t calls[TEMPI_WAYS];
    double best[TEMPI_WAYS];
} tempi_trial;

/* Trials under way of one type and operation. */
enum { TEMPI_TRIALS = 4 };
typedef struct tempi_trials {
    tempi_trial trial[TEMPI_TRIALS];
    tempi_choices guesses; /* by the tables */
} tempi_trials;

/* A call that is being timed; trial == NULL: it is not. */
typedef struct tempi_sample {
    tempi_trial *trial;
    int way;
    double begun;
} tempi_sample;

/* Whether it is settled for calls of that size, and then whether tempi acts on them. */
static inline bool tempi_autotune_knows(const tempi_choices *choices, int64_t bytes)
{
    return __atomic_load_n(&choices->known, __ATOMIC_ACQUIRE) >> tempi_choice_step(bytes) & 1;
}

static inline bool tempi_autotune_says(const tempi_choices *choices, int64_t bytes)
{
    return __atomic_load_n(&choices->ours, __ATOMIC_RELAXED) >> tempi_choice_step(bytes) & 1;
}

/* Whether tempi is to act on a call of a size that is not settled; `guess`: whether it would
 * without a trial. Starts *sample. */
bool tempi_autotune_acts(tempi_trials *trials, tempi_choices *choices, int64_t bytes, bool guess,
                         tempi_sample *sample);

void tempi_autotune_note(tempi_sample *sample, bool counts);

/* For tests: seconds that a call takes by each way, instead of what the clock says; NULL: the
 * clock. */
void tempi_autotune_pretend(const double *seconds);

/* Ends what was started; `counts`: the call succeeded and did all of its work. */
static inline void tempi_autotune_end(tempi_sample *sample, bool counts)
{
    if (sample->trial)
        tempi_autotune_note(sample, counts);
}

#endif
