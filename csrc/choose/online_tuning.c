#include "choose/online_tuning.h"
#include "base/config.h"
#include "base/log.h"
#include "base/stats.h"
#include "choose/correction.h"
#include "choose/fast_math.h"
#include "choose/shape.h"

#include <stdlib.h>

/* Classes: two octaves of size and of run each; strides: near, within a page, and wider. */
enum {
    SIZES = 9,
    SMALLEST = 5,
    RUNS = 5,
    STRIDES = 3,
    QUANTITIES = TEMPI_QUANTITY_STAGE_UNPACK + 1
};
enum { CELLS = QUANTITIES * TEMPI_FAMILIES * SIZES * RUNS * STRIDES };

/* Shorter times are dominated by the clock. */
#define SHORTEST 0.5e-6
/* Cached choices are re-evaluated at this interval, because corrections decay. */
enum { AGAIN = TEMPI_CORRECTION_HALF / 8 };

bool tempi_online_tuning;

static struct {
    const tempi_model *model;
    tempi_correction *cells;
    double clock; /* seconds that one reading takes */
    double pretended[QUANTITIES];
    uint64_t choices; /* choices made: the time by which corrections decay */
    uint32_t epoch;   /* counts moves of corrections */
} tuning;

/* ---- the clock ------------------------------------------------------------------------------- */

static double cost_of_clock(void)
{
    double least = 1;
    for (int i = 0; i < 64; ++i) {
        const double start = tempi_clock(), took = tempi_clock() - start;
        least = took < least ? took : least;
    }
    return least;
}

void tempi_tuning_start(const tempi_model *model)
{
    if (!tempi_config.model_update || !model || tuning.cells)
        return;
    tuning.cells = calloc(CELLS, sizeof *tuning.cells);
    if (!tuning.cells) {
        TEMPI_LOG(TEMPI_LOG_WARN,
                  "TEMPI_MODEL_UPDATE: out of memory; the tables are not corrected");
        return;
    }
    tuning.model = model;
    tuning.clock = cost_of_clock();
    tempi_online_tuning = true;
}

/* ---- classes --------------------------------------------------------------------------------- */

static int two_octaves(int64_t bytes, int first, int n)
{
    const int class = (63 - __builtin_clzll((unsigned long long)bytes | 1)) / 2 - first;
    return class < 0 ? 0 : class < n ? class : n - 1;
}

static tempi_correction *cell_of(tempi_quantity quantity, tempi_shape shape, int64_t bytes)
{
    const int stride = shape.stride < 256 ? 0 : shape.stride < 4096 ? 1 : 2;
    const int size = two_octaves(bytes, SMALLEST, SIZES), run = two_octaves(shape.run, 1, RUNS);
    const int family = (int)tempi_shape_family(shape);
    return &tuning.cells[((((int)quantity * TEMPI_FAMILIES + family) * SIZES + size) * RUNS + run) *
                             STRIDES +
                         stride];
}

static uint64_t choices_made(void)
{
    return __atomic_load_n(&tuning.choices, __ATOMIC_RELAXED);
}

static double factor(tempi_quantity quantity, tempi_shape shape, int64_t bytes)
{
    const double correction = tempi_correction_at(cell_of(quantity, shape, bytes), choices_made());
    return correction == 0 ? 1 : tempi_fast_exp(correction);
}

/* ---- samples --------------------------------------------------------------------------------- */

static void bump(void)
{
    __atomic_fetch_add(&tuning.epoch, 1, __ATOMIC_SEQ_CST);
}

void tempi_tuning_took(double start, tempi_quantity quantity, const tempi_layout *layout,
                       int64_t bytes)
{
    /* The tables hold MPI_Pack as a whole; the timer covers only the packing in it. */
    const bool whole = quantity == TEMPI_QUANTITY_OWN_PACK || quantity == TEMPI_QUANTITY_OWN_UNPACK;
    double seconds = tempi_clock() - start - tuning.clock +
                     (whole ? tuning.model->header->call : 0);
    const double pretended = tuning.pretended[quantity];
    if ((seconds < SHORTEST && pretended == 0) || bytes <= 0 || layout->dense)
        return;
    const double predicted = tempi_model_part(tuning.model, quantity, layout, bytes);
    if (predicted <= 0)
        return;
    if (pretended > 0)
        seconds = pretended * predicted;
    tempi_stat_add(TEMPI_STAT_model_samples, 1);
    tempi_correction *cell = cell_of(quantity, tempi_shape_of(layout), bytes);
    if (tempi_correction_feed(cell, tempi_fast_log(seconds / predicted), choices_made()))
        bump();
}

/* ---- choices --------------------------------------------------------------------------------- */

static tempi_prediction corrected(const tempi_prediction *predicted, tempi_operation operation,
                                  tempi_shape shape, int64_t bytes)
{
    tempi_prediction p = *predicted;
    if (operation == TEMPI_OP_PACK || operation == TEMPI_OP_UNPACK) {
        const bool packs = operation == TEMPI_OP_PACK;
        p.library *= factor(packs ? TEMPI_QUANTITY_LIBRARY_PACK : TEMPI_QUANTITY_LIBRARY_UNPACK,
                            shape, bytes);
        p.host *= factor(packs ? TEMPI_QUANTITY_OWN_PACK : TEMPI_QUANTITY_OWN_UNPACK, shape, bytes);
        return p;
    }
    p.pack *= factor(TEMPI_QUANTITY_STAGE_PACK, shape, bytes);
    p.unpack *= factor(TEMPI_QUANTITY_STAGE_UNPACK, shape, bytes);
    p.host = p.pack + p.message + p.unpack;
    return p;
}

/* A choice is kept until the other way is better by more than predictions fluctuate. */
static bool better(const tempi_prediction *p, bool decided, bool ours)
{
    if (!decided)
        return p->host < (1 - TEMPI_MODEL_MARGIN) * p->library;
    return ours ? p->host < (1 + TEMPI_MODEL_MARGIN) * p->library
                : p->host < (1 - 3 * TEMPI_MODEL_MARGIN) * p->library;
}

static void set(uint64_t *word, uint64_t bit, bool on)
{
    if (on)
        __atomic_fetch_or(word, bit, __ATOMIC_RELAXED);
    else
        __atomic_fetch_and(word, ~bit, __ATOMIC_RELAXED);
}

/* 1. Predicts with the current corrections, and stores the choice.
 * 2. If the corrections moved meanwhile, the cache may have been cleared before the store: takes
 * the choice back. */
static void decide(const tempi_layout *layout, tempi_operation operation, int peer, int step,
                   uint32_t epoch, tempi_choices *cache)
{
    const double most = tempi_fast_exp(TEMPI_CORRECTION_MOST);
    const uint64_t bit = (uint64_t)1 << step;
    const int64_t bytes = tempi_choice_middle(step);
    const bool decided = __atomic_load_n(&cache->decided, __ATOMIC_RELAXED) & bit;
    const bool before = __atomic_load_n(&cache->ours, __ATOMIC_RELAXED) & bit;
    tempi_prediction predicted;
    bool ours = false, open = false;
    if (tempi_model_predict(tuning.model, layout, bytes, (int)operation, peer, &predicted) ==
        TEMPI_OK) {
        const tempi_prediction p = corrected(&predicted, operation, tempi_shape_of(layout), bytes);
        ours = better(&p, decided, before);
        open = p.host < most * p.library && p.library < most * p.host;
    }
    tempi_stat_add(decided ? TEMPI_STAT_model_again : TEMPI_STAT_model_choices, 1);
    if (decided && ours != before)
        tempi_stat_add(TEMPI_STAT_model_changed, 1);
    set(&cache->ours, bit, ours);
    set(&cache->open, bit, open);
    set(&cache->decided, bit, true);
    __atomic_fetch_or(&cache->known, bit, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&tuning.epoch, __ATOMIC_SEQ_CST) != epoch)
        __atomic_fetch_and(&cache->known, ~bit, __ATOMIC_SEQ_CST);
}

/* Clears the cache after a correction has moved. */
static uint32_t refresh(tempi_choices *cache)
{
    const uint32_t epoch = __atomic_load_n(&tuning.epoch, __ATOMIC_SEQ_CST);
    uint32_t own = __atomic_load_n(&cache->epoch, __ATOMIC_SEQ_CST);
    if (own != epoch && __atomic_compare_exchange_n(&cache->epoch, &own, epoch, false,
                                                    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        __atomic_store_n(&cache->known, 0, __ATOMIC_SEQ_CST);
    return epoch;
}

/* Whether the n-th query tries the other way: twice an octave from 8 on, later every 512th. */
static bool explores(uint32_t n)
{
    if (n < 8)
        return false;
    if (n >= 1024)
        return n % 512 == 0;
    const uint32_t octave = 1u << (31 - __builtin_clz(n));
    return n == octave || n == octave + octave / 2;
}

bool tempi_tuning_acts(const tempi_layout *layout, tempi_operation operation, int peer,
                       int64_t bytes, tempi_choices *cache)
{
    const int step = tempi_choice_step(bytes);
    const uint64_t bit = (uint64_t)1 << step;
    if (__atomic_add_fetch(&tuning.choices, 1, __ATOMIC_RELAXED) % AGAIN == 0)
        bump();
    const uint32_t epoch = refresh(cache);
    if (!(__atomic_load_n(&cache->known, __ATOMIC_ACQUIRE) & bit))
        decide(layout, operation, peer, step, epoch, cache);
    const bool ours = __atomic_load_n(&cache->ours, __ATOMIC_RELAXED) & bit;
    if (!explores(__atomic_add_fetch(&cache->queries, 1, __ATOMIC_RELAXED)) ||
        !(__atomic_load_n(&cache->open, __ATOMIC_RELAXED) & bit))
        return ours;
    tempi_stat_add(TEMPI_STAT_model_tried, 1);
    return !ours;
}

/* ---- report ---------------------------------------------------------------------------------- */

tempi_tuned tempi_tuning_about(tempi_quantity quantity)
{
    enum { EACH = CELLS / QUANTITIES };
    tempi_tuned about = {
        .samples = 0, .least = TEMPI_CORRECTION_MOST, .most = -TEMPI_CORRECTION_MOST};
    if (!tempi_online_tuning || (int)quantity >= QUANTITIES)
        return about;
    for (int i = 0; i < EACH; ++i) {
        const tempi_correction *cell = &tuning.cells[(int)quantity * EACH + i];
        const double samples = (double)__atomic_load_n(&cell->samples, __ATOMIC_RELAXED);
        if (samples < TEMPI_CORRECTION_GROUP)
            continue;
        const double correction = tempi_correction_at(cell, choices_made());
        about.samples += samples;
        about.logarithms += samples * correction;
        about.least = correction < about.least ? correction : about.least;
        about.most = correction > about.most ? correction : about.most;
    }
    return about;
}

void tempi_tuning_pretend(int quantity, double factor_of)
{
    if (quantity >= 0 && quantity < QUANTITIES)
        tuning.pretended[quantity] = factor_of;
}

double tempi_tuning_factor(int quantity, const tempi_layout *layout, int64_t bytes)
{
    if (!tempi_online_tuning || quantity < 0 || quantity >= QUANTITIES)
        return 1;
    return factor((tempi_quantity)quantity, tempi_shape_of(layout), bytes);
}
