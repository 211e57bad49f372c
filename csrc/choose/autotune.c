#include "choose/autotune.h"
#include "base/clock.h"
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
/* The same of ways that are close, which costs little for that reason; most calls in which kernels
 * were still tried. */
enum { CALLS_CLOSE = 16, CALLS_CLOSE_SHORT = 28, WAITED_MOST = 200 };
#define CLOSE      1.3
#define VERY_SHORT 1e-6
#define SHORT      20e-6
#define LONG       1e-3 /* a turn is one call, which counts */
/* The library is far behind if it takes so many times as long in its first turn, or in TURNS: a
 * machine whose other hyperthread has work is half as fast, and is not any more some turns later.
 */
#define FAR_AT_ONCE 4.0
#define FAR         2.0
enum { TURNS = 2 };
#define MARGIN 0.03
/* Seconds spent on a call before the clock starts if tempi handles it, and does not on a call that
 * is settled for the library (Granite Rapids: 9 to 15 ns). */
#define BEFORE_OWN 12e-9

static const double *pretended;

/* ---- one trial ------------------------------------------------------------------------------- */

static bool had_enough(const tempi_trial *trial, int way)
{
    const bool very_short = trial->best[way] < VERY_SHORT;
    if (trial->close)
        return trial->calls[way] >= (very_short ? CALLS_CLOSE_SHORT : CALLS_CLOSE);
    const int usual = way == TEMPI_WAY_OWN ? CALLS_OWN : CALLS_LIBRARY;
    return trial->turns[way] >= TURNS && trial->calls[way] >= (very_short ? CALLS_SHORT : usual);
}

static bool is_far_behind(const tempi_trial *trial)
{
    const double own = trial->best[TEMPI_WAY_OWN], library = trial->best[TEMPI_WAY_LIBRARY];
    const bool again = trial->turns[TEMPI_WAY_OWN] >= TURNS &&
                       trial->turns[TEMPI_WAY_LIBRARY] >= TURNS;
    return !trial->close && library > (again ? FAR : FAR_AT_ONCE) * own;
}

static bool is_over(const tempi_trial *trial)
{
    if (trial->turns[TEMPI_WAY_OWN] == 0 || trial->turns[TEMPI_WAY_LIBRARY] == 0)
        return false;
    return is_far_behind(trial) ||
           (had_enough(trial, TEMPI_WAY_OWN) && had_enough(trial, TEMPI_WAY_LIBRARY));
}

static void begin_turn(tempi_trial *trial, int way, double took)
{
    trial->way = (uint8_t)way;
    trial->left = took < SHORT ? TURN_SHORT : took < LONG ? TURN : 1;
    trial->warms = took < LONG;
    trial->turn_begun = 0;
}

static void next_turn(tempi_trial *trial, double took)
{
    const int other = !trial->way;
    begin_turn(trial, trial->calls[other] > 0 && had_enough(trial, other) ? trial->way : other,
               took);
}

/* Seconds of a call. */
static double took_by(const tempi_trial *trial, int way)
{
    return (trial->close ? tempi_quartile_of(&trial->took[way]) : trial->best[way]) +
           (way == TEMPI_WAY_OWN ? BEFORE_OWN : 0);
}

static bool are_close(const tempi_trial *trial)
{
    const double own = took_by(trial, TEMPI_WAY_OWN), library = took_by(trial, TEMPI_WAY_LIBRARY);
    return own < CLOSE * library && library < CLOSE * own;
}

static void settle(tempi_trial *trial)
{
    tempi_choices *choices = trial->choices;
    const uint64_t bit = (uint64_t)1 << trial->step;
    const double own = took_by(trial, TEMPI_WAY_OWN), library = took_by(trial, TEMPI_WAY_LIBRARY);
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

static void begin_again(tempi_trial *trial, double took)
{
    trial->close = true;
    for (int way = 0; way < TEMPI_WAYS; ++way)
        trial->calls[way] = trial->turns[way] = 0;
    begin_turn(trial, TEMPI_WAY_OWN, took);
}

static void note_time(tempi_trial *trial, double took)
{
    const int way = trial->way;
    const bool first = trial->calls[way]++ == 0;
    if (trial->close)
        tempi_quartile_add(&trial->took[way], took);
    else if (first || took < trial->best[way])
        trial->best[way] = took;
}

/* After a turn's last call. */
static void end_turn(tempi_trial *trial, double took)
{
    ++trial->turns[trial->way];
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
static bool must_wait(tempi_trial *trial, bool tried_kernels)
{
    return trial->close && tried_kernels && trial->waited < WAITED_MOST && ++trial->waited;
}

void tempi_autotune_note(tempi_sample *sample, bool counts)
{
    tempi_trial *trial = sample->trial;
    const double ended = pretended ? HUGE_VAL : tempi_clock();
    const double took = pretended ? pretended[sample->way] : ended - sample->begun;
    const bool tried_kernels = tempi_this_thread.kernel_trials != sample->kernel_trials;
    sample->trial = NULL;
    if (counts && !must_wait(trial, tried_kernels))
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
