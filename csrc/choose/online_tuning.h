/* TEMPI_MODEL_UPDATE=1: timings of real work correct the tables while the program runs.
 *
 * Only work local to this process within one call is timed: MPI_Pack and MPI_Unpack by tempi and by
 * the library, the pack before a send, the unpack after a receive. The rest of a send or a receive
 * includes the peer's lateness, so messages of packed bytes and the library's messages stay as
 * calibrated.
 *
 * Corrections are stored by quantity, family of shapes, and classes of size, run and stride, so
 * similar shapes share them. When a correction has moved, cached choices are made anew. The way
 * that is not chosen is tried now and then, less and less often, if its time is within the bound of
 * a correction. */
#ifndef TEMPI_CHOOSE_ONLINE_TUNING_H
#define TEMPI_CHOOSE_ONLINE_TUNING_H

#include "base/clock.h"
#include "choose/model.h"
#include "choose/table_file.h"

/* Set before any type is decoded; constant from then on. */
extern bool tempi_online_tuning;

/* Enables online tuning if TEMPI_MODEL_UPDATE is set and memory is available. */
void tempi_tuning_start(const tempi_model *model);

/* Whether tempi handles that message. */
bool tempi_tuning_acts(const tempi_layout *layout, tempi_operation operation, int peer,
                       int64_t bytes, tempi_choices *cache);

/* Records work on `bytes` packed bytes of host memory that began at `start`. */
void tempi_tuning_took(double start, tempi_quantity quantity, const tempi_layout *layout,
                       int64_t bytes);

static inline double tempi_tuning_begin(void)
{
    return tempi_online_tuning ? tempi_clock() : 0;
}

static inline void tempi_tuning_end(double start, tempi_quantity quantity,
                                    const tempi_layout *layout, int64_t bytes)
{
    if (tempi_online_tuning)
        tempi_tuning_took(start, quantity, layout, bytes);
}

/* The tuning result of one quantity. Factors are measured over predicted, of the classes that have
 * a correction. */
typedef struct tempi_tuned {
    double samples;
    /* Sum over the samples; divided by their number, the logarithm of the mean factor. */
    double logarithms;
    double least, most;
} tempi_tuned;
tempi_tuned tempi_tuning_about(tempi_quantity quantity);

/* For tests: makes that quantity take `factor` times its predicted time; 0: use the clock. */
void tempi_tuning_pretend(int quantity, double factor);
/* For tests: the current correction factor of that quantity. */
double tempi_tuning_factor(int quantity, const tempi_layout *layout, int64_t bytes);

#endif
