#include "choose/autotune.h"
#include "base/stats.h"
#include "choose/online_tuning.h"

/* Calls that count per way. Short calls need more samples to exceed the clock's noise; tempi needs
 * more than the library because it has several kernels to try. */
enum { CALLS_OWN = 8, CALLS_LIBRARY = 4, CALLS_SHORT = 21, CALLS_IN_TURN = 8 };
#define VERY_SHORT 1e-6
#define SHORT      20e-6
#define HOPELESS   2.0
#define MARGIN     0.03
/* Seconds spent on a call before the clock starts if tempi handles it; a call settled for the
 * library does not spend them. */
#define BEFORE_OWN 35e-9

static const double *pretended;

/* ---- one trial ------------------------------------------------------------------------------- */

static bool had_enough(const tempi_trial *trial, int way)
{
    const int usual = way == TEMPI_WAY_OWN ? CALLS_OWN : CALLS_LIBRARY;
    return trial->calls[way] >= (trial->best[way] < VERY_SHORT ? CALLS_SHORT : usual);
}

static bool is_over(const tempi_trial *trial)
{
    if (trial->calls[TEMPI_WAY_OWN] == 0 || trial->calls[TEMPI_WAY_LIBRARY] == 0)
        return false;
    return trial->best[TEMPI_WAY_LIBRARY] > HOPELESS * trial->best[TEMPI_WAY_OWN] ||
           (had_enough(trial, TEMPI_WAY_OWN) && had_enough(trial, TEMPI_WAY_LIBRARY));
}

static void begin_turn(tempi_trial *trial, int way, double took)
{
    trial->way = (uint8_t)way;
    trial->left = took < SHORT ? CALLS_IN_TURN : 1;
    trial->uncounted = took < SHORT;
}

static void next_turn(tempi_trial *trial, double took)
{
    const int other = !trial->way;
    begin_turn(trial, trial->calls[other] > 0 && had_enough(trial, other) ? trial->way : other,
               took);
}

static void settle(tempi_trial *trial)
{
    tempi_choices *choices = trial->choices;
    const uint64_t bit = (uint64_t)1 << trial->step;
    const double own = trial->best[TEMPI_WAY_OWN] + BEFORE_OWN,
                 library = trial->best[TEMPI_WAY_LIBRARY];
    const bool ours = trial->guess ? library >= (1 - MARGIN) * own : own < (1 - MARGIN) * library;
    tempi_stat_add(TEMPI_STAT_packs_tuned, 1);
    if (ours != trial->guess)
        tempi_stat_add(TEMPI_STAT_packs_changed, 1);
    if (ours)
        __atomic_fetch_or(&choices->ours, bit, __ATOMIC_RELAXED);
    __atomic_fetch_or(&choices->known, bit, __ATOMIC_RELEASE);
    trial->choices = NULL;
}

static void release(tempi_trial *trial)
{
    __atomic_store_n(&trial->busy, 0, __ATOMIC_RELEASE);
}

static void count_call(tempi_trial *trial, double took)
{
    double *best = &trial->best[trial->way];
    if (!trial->uncounted)
        *best = trial->calls[trial->way]++ == 0 || took < *best ? took : *best;
    trial->uncounted = false;
    if (--trial->left > 0)
        return;
    if (is_over(trial))
        settle(trial);
    else if (trial->calls[TEMPI_WAY_OWN] + trial->calls[TEMPI_WAY_LIBRARY] == 0)
        begin_turn(trial, trial->way, took); /* after the very first call */
    else
        next_turn(trial, took);
}

void tempi_autotune_note(tempi_sample *sample, bool counts)
{
    tempi_trial *trial = sample->trial;
    const double took = pretended ? pretended[sample->way] : tempi_tuning_clock() - sample->begun;
    sample->trial = NULL;
    if (counts)
        count_call(trial, took);
    release(trial);
}

/* ---- trials of a type ------------------------------------------------------------------------ */

/* The step's trial, owned by the caller until released; NULL: it or its slot is in use. */
static tempi_trial *claim(tempi_trials *trials, tempi_choices *choices, int step, bool guess)
{
    tempi_trial *trial = &trials->trial[step % TEMPI_TRIALS];
    if (__atomic_exchange_n(&trial->busy, 1, __ATOMIC_ACQUIRE))
        return NULL;
    if (__atomic_load_n(&choices->known, __ATOMIC_ACQUIRE) >> step & 1) {
        release(trial);
        return NULL;
    }
    /* Several sizes share this slot: the running trial goes first. */
    if (trial->choices && trial->step != step) {
        release(trial);
        return NULL;
    }
    if (!trial->choices)
        *trial = (tempi_trial){.choices = choices,
                               .busy = 1,
                               .step = (int8_t)step,
                               .guess = guess,
                               .way = guess,
                               .left = 1,
                               .uncounted = true};
    return trial;
}

bool tempi_autotune_acts(tempi_trials *trials, tempi_choices *choices, int64_t bytes, bool guess,
                         tempi_sample *sample)
{
    const int step = tempi_choice_step(bytes);
    sample->trial = NULL;
    tempi_trial *trial = claim(trials, choices, step, guess);
    if (!trial)
        return tempi_autotune_is_settled(choices, bytes) ? tempi_autotune_choice(choices, bytes)
                                                         : guess;
    sample->trial = trial;
    sample->way = trial->way;
    sample->begun = tempi_tuning_clock();
    return sample->way == TEMPI_WAY_OWN;
}

void tempi_autotune_pretend(const double *seconds)
{
    pretended = seconds;
}
