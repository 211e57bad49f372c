/* online_tuning_driver.c: corrects tables by made-up times, without MPI. The argument is a table in
 * which tempi's MPI_Pack takes twice as long as the library's, at every size. Exits at the first
 * failed check and prints its line. Meant for the sanitizers, including the thread sanitizer. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/config.h"
#include "base/stats.h"
#include "choose/correction.h"
#include "choose/online_tuning.h"

#define CHECK(what)                                            \
    do {                                                       \
        if (!(what)) {                                         \
            fprintf(stderr, "line %d: %s\n", __LINE__, #what); \
            exit(1);                                           \
        }                                                      \
    } while (0)

enum { BYTES = 1 << 16, THREADS = 4, TURNS = 20000 };

/* There is no card here. */
int tempi_machine_add_gpu(tempi_machine *machine, int32_t ordinal)
{
    (void)machine, (void)ordinal;
    return TEMPI_ERR_UNSUPPORTED;
}

/* ---- one correction -------------------------------------------------------------------------- */

static int feed(tempi_correction *correction, double sample, int n, uint64_t now)
{
    int moves = 0;
    for (int i = 0; i < n; ++i)
        moves += tempi_correction_feed(correction, sample, now);
    return moves;
}

static void check_converges(void)
{
    tempi_correction correction = {.n = 0};
    CHECK(feed(&correction, 0.7, TEMPI_CORRECTION_GROUP - 1, 0) == 0 &&
          tempi_correction_at(&correction, 0) == 0);
    CHECK(feed(&correction, 0.7, 1, 0) == 1 &&
          fabs(tempi_correction_at(&correction, 0) - 0.35) < 1e-12);
    CHECK(feed(&correction, 0.7, 20 * TEMPI_CORRECTION_GROUP, 0) <
          8); /* reported only while it moves */
    CHECK(fabs(tempi_correction_at(&correction, 0) - 0.7) < 1e-5 &&
          correction.samples == 21 * TEMPI_CORRECTION_GROUP);
    feed(&correction, -0.2, 20 * TEMPI_CORRECTION_GROUP, 0);
    CHECK(fabs(tempi_correction_at(&correction, 0) + 0.2) < 1e-5);
}

static void check_is_bounded(void)
{
    tempi_correction up = {.n = 0}, down = {.n = 0};
    feed(&up, 1e9, 400, 0);
    feed(&down, -1e9, 400, 0);
    CHECK(fabs(tempi_correction_at(&up, 0) - log(4)) < 1e-9 &&
          fabs(tempi_correction_at(&down, 0) + log(4)) < 1e-9);
}

static void check_decays(void)
{
    tempi_correction correction = {.n = 0};
    feed(&correction, 1, 400, 1000);
    const double whole = tempi_correction_at(&correction, 1000);
    CHECK(fabs(tempi_correction_at(&correction, 1000 + TEMPI_CORRECTION_HALF) - whole / 2) < 1e-9);
    CHECK(fabs(tempi_correction_at(&correction, 1000 + 3 * TEMPI_CORRECTION_HALF) - whole / 8) <
          1e-9);
    CHECK(tempi_correction_at(&correction, 999) ==
          whole); /* another thread's clock may be behind */
}

static void check_outliers(void)
{
    tempi_correction correction = {.n = 0};
    for (int group = 0; group < 30; ++group) {
        const double samples[TEMPI_CORRECTION_GROUP] = {9, 0.1, 9, -9, 0.1};
        for (int i = 0; i < TEMPI_CORRECTION_GROUP; ++i)
            tempi_correction_feed(&correction, samples[i], 0);
    }
    CHECK(fabs(tempi_correction_at(&correction, 0) - 0.1) < 1e-6);
    const tempi_correction before = correction;
    CHECK(feed(&correction, NAN, 50, 0) == 0 && feed(&correction, INFINITY, 50, 0) == 0 &&
          correction.samples == before.samples);
}

/* ---- choices --------------------------------------------------------------------------------- */

static tempi_box box = {
    .run = 8, .ndims = 1, .dims = {{.count = BYTES / 8, .stride = 64, .packed_stride = 8}}};
static tempi_layout vector = {.size = BYTES,
                              .extent = 8 * BYTES,
                              .true_ub = 8 * BYTES - 56,
                              .runs = BYTES / 8,
                              .nboxes = 1,
                              .boxes = &box};

static uint64_t stat(int which)
{
    return tempi_stats_value(which);
}

/* As the shim does it. */
static bool pack(tempi_choices *choices)
{
    const bool ours = tempi_tuning_acts(&vector, TEMPI_OP_PACK, 0, BYTES, choices);
    const double start = tempi_tuning_begin();
    tempi_tuning_end(start, ours ? TEMPI_QUANTITY_OWN_PACK : TEMPI_QUANTITY_LIBRARY_PACK, &vector,
                     BYTES);
    return ours;
}

static int packs(tempi_choices *choices, int n)
{
    int ours = 0;
    for (int i = 0; i < n; ++i)
        ours += pack(choices);
    return ours;
}

static void pretend(double own, double library)
{
    tempi_tuning_pretend(TEMPI_QUANTITY_OWN_PACK, own);
    tempi_tuning_pretend(TEMPI_QUANTITY_LIBRARY_PACK, library);
}

static double own_factor(void)
{
    return tempi_tuning_factor(TEMPI_QUANTITY_OWN_PACK, &vector, BYTES);
}

/* The tables say 2 to 1. */
static void check_choices(void)
{
    tempi_choices choices = {.known = 0};
    pretend(0.3, 1); /* really 0.6 to 1 */
    CHECK(packs(&choices, 7) == 0);
    CHECK(packs(&choices, 4096) > 3900 && stat(TEMPI_STAT_model_changed) == 1);
    CHECK(fabs(own_factor() - 0.3) < 0.01);
    pretend(0.5, 1); /* equal: nothing changes to and fro */
    CHECK(packs(&choices, 8192) > 8000 && stat(TEMPI_STAT_model_changed) == 1);
    pretend(2, 1);
    CHECK(packs(&choices, 4096) < 200 && packs(&choices, 4096) == 8 &&
          stat(TEMPI_STAT_model_changed) == 2);
    pretend(1e-6, 1e6); /* whatever the times, the factors stay within 4 */
    packs(&choices, 20000);
    CHECK(own_factor() >= 0.2499 &&
          tempi_tuning_factor(TEMPI_QUANTITY_LIBRARY_PACK, &vector, BYTES) <= 4.001);
}

/* Fades by choices alone, of any type, and then the tables choose again. */
static void check_fading(void)
{
    tempi_choices choices = {.known = 0}, others = {.known = 0};
    pretend(0.3, 1);
    packs(&choices, 4096);
    const double before = own_factor();
    CHECK(before < 0.35 && pack(&choices));
    for (int i = 0; i < 4 * TEMPI_CORRECTION_HALF; ++i)
        tempi_tuning_acts(&vector, TEMPI_OP_UNPACK, 0, BYTES, &others);
    CHECK(own_factor() > pow(before, 1.0 / 15) && own_factor() < 1);
    CHECK(!pack(&choices));
}

/* Times below the clock's resolution, or without a table, are not samples. */
static void check_no_samples(void)
{
    pretend(0, 0);
    const uint64_t before = stat(TEMPI_STAT_model_samples);
    tempi_layout dense = vector;
    dense.dense = 1;
    tempi_tuning_took(tempi_clock() + 1, TEMPI_QUANTITY_OWN_PACK, &vector, BYTES);
    tempi_tuning_took(tempi_clock() - 1, TEMPI_QUANTITY_OWN_PACK, &dense, BYTES);
    tempi_tuning_took(tempi_clock() - 1, TEMPI_QUANTITY_OWN_PACK, &vector, 0);
    tempi_tuning_took(tempi_clock() - 1, TEMPI_QUANTITY_STAGE_PACK, &vector, BYTES);
    CHECK(stat(TEMPI_STAT_model_samples) == before);
    tempi_tuning_took(tempi_clock() - 1e-3, TEMPI_QUANTITY_OWN_PACK, &vector, BYTES);
    CHECK(stat(TEMPI_STAT_model_samples) == before + 1);
    const tempi_tuned about = tempi_tuning_about(TEMPI_QUANTITY_OWN_PACK);
    CHECK(about.samples > 0 && about.least <= about.most &&
          tempi_tuning_about(TEMPI_QUANTITY_STAGE_PACK).samples == 0);
}

/* ---- threads --------------------------------------------------------------------------------- */

static tempi_choices shared;

static void *work(void *unused)
{
    (void)unused;
    packs(&shared, TURNS);
    return NULL;
}

static void check_threads(void)
{
    pthread_t threads[THREADS];
    pretend(0.3, 1);
    for (int i = 0; i < THREADS; ++i)
        CHECK(pthread_create(&threads[i], NULL, work, NULL) == 0);
    for (int i = 0; i < THREADS; ++i)
        pthread_join(threads[i], NULL);
    CHECK(packs(&shared, 511) > 500); /* no choice of an older state was left behind */
}

int main(int argc, char **argv)
{
    check_converges();
    check_is_bounded();
    check_decays();
    check_outliers();
    const tempi_model *model = argc == 2 ? tempi_model_open(argv[1], NULL) : NULL;
    CHECK(model);
    tempi_tuning_start(model);
    CHECK(!tempi_online_tuning); /* off by default */
    tempi_config.model_update = true;
    tempi_threads_share();
    tempi_tuning_start(model);
    CHECK(tempi_online_tuning);
    check_choices();
    check_fading();
    check_no_samples();
    check_threads();
    return 0;
}
