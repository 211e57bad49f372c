/* Online trials: measures on the program's own calls whether tempi or the library packs faster.
 *
 * MPI_Pack and MPI_Unpack are local and give the same result either way, so the first calls of a
 * type and size step can try both. Tables, or else the built-in rule, give the first guess:
 *
 *   1. The guessed way runs once, not counted: this call may be the first to touch its pages.
 *   2. The two ways alternate until the library is far behind, or both have enough samples.
 *      A turn of short calls is several calls in a row; its first ones are not counted, because
 *      they find the caches as the other way left them.
 *   3. If they are close, both go on, tempi's with the kernels that the trials of kernels
 *      (pack/kernel_trials.h) have settled. Then the median counts of what a turn takes, divided
 *      by the one before: a machine's speed may change by a factor of two every some turns.
 *   4. The faster way is stored in the type's choices; tempi if it gains 3%.
 *
 * Messages cannot be tuned this way: the time that the peer takes is not visible. */
#ifndef TEMPI_CHOOSE_AUTOTUNE_H
#define TEMPI_CHOOSE_AUTOTUNE_H

#include "base/quartile.h"
#include "choose/model.h"

enum { TEMPI_WAY_LIBRARY, TEMPI_WAY_OWN, TEMPI_WAYS };

/* The trial of one step of size. */
enum { TEMPI_TRIAL_RATIOS = 32 };
typedef struct tempi_trial {
    tempi_choices *choices;
    int busy; /* one call at a time is timed; concurrent ones take the guessed way */
    int8_t step;
    bool guess;
    uint8_t way;       /* whose turn it is */
    uint8_t left;      /* calls that count and remain in this turn */
    bool first;        /* the next call is the first one, which is not counted */
    bool warms;        /* the first calls of this turn are not counted */
    bool close;        /* the first times differed little: the others decide, turn by turn */
    int waits;         /* calls since then in which kernels were tried */
    double waited;     /* their seconds */
    double turn_begun; /* seconds; 0: not yet */
    uint8_t calls[TEMPI_WAYS];
    double best[TEMPI_WAYS]; /* of the first calls, seconds */
    tempi_quartile turn;     /* since they are close: of this turn */
    double last;             /* the turn before, by the other way; 0: there is none */
    uint8_t nratios;
    double ratios[TEMPI_TRIAL_RATIOS]; /* tempi by library, of neighbours, in ascending order */
} tempi_trial;

/* The running trials of one type and operation. */
enum { TEMPI_TRIALS = 4 };
typedef struct tempi_trials {
    tempi_trial trial[TEMPI_TRIALS];
    tempi_choices guesses; /* predicted by the tables */
} tempi_trials;

/* A call that is being timed; trial == NULL: the call is not timed. */
typedef struct tempi_sample {
    tempi_trial *trial;
    int way;
    int kernel_trials; /* of this thread, before the call */
    double begun;
} tempi_sample;

/* Whether the choice for this size is final, and then whether tempi handles the call. */
static inline bool tempi_autotune_is_settled(const tempi_choices *choices, int64_t bytes)
{
    return __atomic_load_n(&choices->known, __ATOMIC_ACQUIRE) >> tempi_choice_step(bytes) & 1;
}

static inline bool tempi_autotune_choice(const tempi_choices *choices, int64_t bytes)
{
    return __atomic_load_n(&choices->ours, __ATOMIC_RELAXED) >> tempi_choice_step(bytes) & 1;
}

/* Whether tempi handles a call whose size has no final choice; `guess`: the choice without a trial.
 * Starts *sample. */
bool tempi_autotune_acts(tempi_trials *trials, tempi_choices *choices, int64_t bytes, bool guess,
                         tempi_sample *sample);

void tempi_autotune_note(tempi_sample *sample, bool counts);

/* For tests: seconds that a call takes by each way, instead of the clock; NULL: use the clock. */
void tempi_autotune_pretend(const double *seconds);

/* Ends the sample; `counts`: the call succeeded and did all of its work. */
static inline void tempi_autotune_end(tempi_sample *sample, bool counts)
{
    if (sample->trial)
        tempi_autotune_note(sample, counts);
}

#endif
