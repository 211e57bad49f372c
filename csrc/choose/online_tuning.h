/* TEMPI_MODEL_UPDATE=1: what real work takes corrects the tables while the program runs.
 *
 * Timed is what is this process's own within one call: MPI_Pack and MPI_Unpack by tempi and by the
 * library, the pack of a message before it is sent, the unpack after it came. What a send or a
 * receive takes beyond that has the other rank's lateness in it and tells nothing, so messages of
 * packed bytes and the library's messages stay as they were calibrated.
 *
 * Biases are kept by quantity, family of shapes, and classes of size, run and stride: shapes that
 * are alike teach one another. A choice that was kept is made anew when a bias has moved. The way
 * that is not chosen is tried now and then, less and less often, where its time is within the bound
 * of a bias. */
#ifndef TEMPI_MODEL_LEARN_H
#define TEMPI_MODEL_LEARN_H

#include "choose/model.h"
#include "choose/table_file.h"

/* Set before any type is decoded, and then for good. */
extern bool tempi_online_tuning;

/* By TEMPI_MODEL_UPDATE; without memory nothing is learned. */
void tempi_tuning_start(const tempi_model *model);

/* Whether tempi is to carry that message. */
bool tempi_tuning_acts(const tempi_layout *layout, tempi_operation operation, int peer,
                       int64_t bytes, tempi_choices *cache);

double tempi_tuning_clock(void);
/* `bytes` packed bytes of host memory, begun at `start`. */
void tempi_tuning_took(double start, tempi_quantity quantity, const tempi_layout *layout,
                       int64_t bytes);

static inline double tempi_tuning_begin(void)
{
    return tempi_online_tuning ? tempi_tuning_clock() : 0;
}

static inline void tempi_tuning_end(double start, tempi_quantity quantity,
                                    const tempi_layout *layout, int64_t bytes)
{
    if (tempi_online_tuning)
        tempi_tuning_took(start, quantity, layout, bytes);
}

/* What was learned of one quantity. Factors: measured over predicted, of the classes that have a
 * bias. */
typedef struct tempi_tuned {
    double samples;
    double
        logarithms; /* sum over the samples; over their number: the logarithm of the mean factor */
    double least, most;
} tempi_tuned;
tempi_tuned tempi_tuning_about(tempi_quantity quantity);

/* For tests: from now on that quantity lasts `factor` times what the tables say; 0: what the clock
 * says. */
void tempi_tuning_pretend(int quantity, double factor);
/* For tests: the factor by which that quantity is corrected now. */
double tempi_tuning_factor(int quantity, const tempi_layout *layout, int64_t bytes);

#endif
