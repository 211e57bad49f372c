/* TEMPI_STATS=1 and TEMPI_STATS_FILE: the counters of all ranks, at MPI_Finalize. */
#ifndef TEMPI_SHIM_JOB_REPORT_H
#define TEMPI_SHIM_JOB_REPORT_H

#include "base/fallback.h"

#include <stdint.h>

/* Collective over MPI_COMM_WORLD. */
void tempi_report(void);

/* Rank 0 writes this JSON file: for each nonzero counter the sum over all ranks and the maximum
 * of one rank. */
void tempi_report_write(const char *path, int ranks, const uint64_t *sum, const uint64_t *most,
                        const tempi_fallback *fallbacks);

#endif
