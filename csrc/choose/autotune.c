#include "choose/autotune.h"
#include "base/clock.h"
#include "base/sorted.h"
#include "base/stats.h"
#include "base/thread.h"
#include "base/warm_up.h"
#include "choose/online_tuning.h"

#include <math.h>

/* Calls that count per way. Short calls need more samples to exceed the clock's noise; tempi needs
 * more than the library because it has several kernels to try. */
enum { CALLS_OWN = 8, CALLS_LIBRARY = 4, CALLS_SHORT = 21 };
/* Calls of a turn that count, after its warm-up. */
enum { TURN_SHORT = 7, TURN = 3 };
/* The same of ways that are close, which costs little for that reason. */
enum { CALLS_CLOSE = 16, CALLS_CLOSE_SHORT = 28 };
/* Calls in which kernels were still tried: so many are waited for, or so many seconds. (Eight
 * kernels of short calls have eight turns of 55 us at most: kernel_trials.h.) */
enum { WAITED_CALLS = 200 };
#define WAITED_SECONDS 5e-3
/* A machine whose other hyperthread has work is half as fast (Granite Rapids: 2.3 times), and is
 * not any more some turns later. Ways that differ by more are not close. */
#define CLOSE      2.5
#define VERY_SHORT 1e-6
#define SHORT      20e-6
#define LONG       1e-3 /* a turn is one call, which counts */
#define MARGIN     0.03 /* between equals the library is the safe way */
/* Seconds that a call takes before and after its clock runs if tempi handles it, beyond those of
 * one that is settled for the library. (Zen 3: MPI_Pack takes 23 to 48 ns more than the engine
 * alone, one that is left 3 to 16 more than the library; `tempi bench pack`, 4 KiB.) */
#define BESIDE_OWN 25e-9

static const double *pretended;

/* ---- one trial ------------------------------------------------------------------------------- */

static bool had_enough(const tempi_trial *trial, int way)
{
    const bool very_short = trial->best[way] < VERY_SHORT;
    if (trial->close)
        return trial->calls[way] >= (very_short ? CALLS_CLOSE_SHORT : CALLS_CLOSE);
    const int usual = way == TEMPI_WAY_OWN ? CALLS_OWN : CALLS_LIBRARY;
    return trial->calls[way] >= (very_short ? CALLS_SHORT : usual);
}

static bool is_over(const tempi_trial *trial)
{
    if (trial->calls[TEMPI_WAY_OWN] == 0 || trial->calls[TEMPI_WAY_LIBRARY] == 0)
        return false;
    return (!trial->close && trial->best[TEMPI_WAY_LIBRARY] > CLOSE * trial->best[TEMPI_WAY_OWN]) ||
           (had_enough(trial, TEMPI_WAY_OWN) && had_enough(trial, TEMPI_WAY_LIBRARY));
}

static void begin_turn(tempi_trial *trial, int way, double took)
{
    trial->way = (uint8_t)way;
    trial->left = took < SHORT ? TURN_SHORT : took < LONG ? TURN : 1;
    trial->warms = took < LONG;
    trial->turn_begun = 0;
}

/* Close ways alternate to the end. */
static void next_turn(tempi_trial *trial, double took)
{
    const int other = !trial->way;
    begin_turn(trial, !trial->close && had_enough(trial, other) ? trial->way : other, took);
}

static double ratio(double own, double library)
{
    return (own + BESIDE_OWN) / library;
}

/* How long tempi takes, as a multiple of the library. */
static double relative(const tempi_trial *trial)
{
    return trial->nratios > 0 ? trial->ratios[trial->nratios / 2]
                              : ratio(trial->best[TEMPI_WAY_OWN], trial->best[TEMPI_WAY_LIBRARY]);
}

static bool are_close(const tempi_trial *trial)
{
    return relative(trial) < CLOSE && CLOSE * relative(trial) > 1;
}

static void settle(tempi_trial *trial)
{
    tempi_choices *choices = trial->choices;
    const uint64_t bit = (uint64_t)1 << trial->step;
    const bool ours = relative(trial) < 1 - MARGIN;
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

static void begin_again(tempi_trial *trial, double took)
{
    trial->close = true;
    trial->calls[TEMPI_WAY_OWN] = trial->calls[TEMPI_WAY_LIBRARY] = 0;
    begin_turn(trial, TEMPI_WAY_OWN, took);
}

static void note_time(tempi_trial *trial, double took)
{
    const int way = trial->way;
    const bool first = trial->calls[way]++ == 0;
    if (trial->close)
        tempi_quartile_add(&trial->turn, took);
    else if (first || took < trial->best[way])
        trial->best[way] = took;
}

static void compare_turns(tempi_trial *trial)
{
    const double last = trial->last, took = tempi_quartile_of(&trial->turn);
    trial->last = took;
    trial->turn.n = 0;
    if (last > 0 && trial->nratios < TEMPI_TRIAL_RATIOS)
        tempi_sorted_add(trial->ratios, trial->nratios++,
                         trial->way == TEMPI_WAY_OWN ? ratio(took, last) : ratio(last, took));
}

/* After a turn's last call. */
static void end_turn(tempi_trial *trial, double took)
{
    if (trial->close)
        compare_turns(trial);
    if (!is_over(trial))
        next_turn(trial, took);
    else if (!trial->close && are_close(trial))
        begin_again(trial, took);
    else
        settle(trial);
}

static void count_call(tempi_trial *trial, double begun, double ended, double took)
{
    if (trial->first) {
        trial->first = false;
        begin_turn(trial, trial->way, took);
        return;
    }
    if (trial->warms && tempi_warms_up(&trial->turn_begun, begun, ended))
        return;
    note_time(trial, took);
    if (--trial->left == 0)
        end_turn(trial, took);
}

/* Ways that are close are compared by the kernels that stay. */
static bool must_wait(tempi_trial *trial, bool tried_kernels, double took)
{
    if (!trial->close || !tried_kernels ||
        (trial->waits >= WAITED_CALLS && trial->waited >= WAITED_SECONDS))
        return false;
    ++trial->waits;
    trial->waited += took;
    return true;
}

void tempi_autotune_note(tempi_sample *sample, bool counts)
{
    tempi_trial *trial = sample->trial;
    const double ended = pretended ? HUGE_VAL : tempi_clock();
    const double took = pretended ? pretended[sample->way] : ended - sample->begun;
    const bool tried_kernels = tempi_this_thread.kernel_trials != sample->kernel_trials;
    sample->trial = NULL;
    if (counts && !must_wait(trial, tried_kernels, took))
        count_call(trial, sample->begun, ended, took);
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
                               .first = true};
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
    sample->kernel_trials = tempi_this_thread.kernel_trials;
    sample->begun = tempi_clock();
    return sample->way == TEMPI_WAY_OWN;
}

void tempi_autotune_pretend(const double *seconds)
{
    pretended = seconds;
}
