/* TEMPI_STATS=1: the counters of all ranks, at MPI_Finalize. */
#ifndef TEMPI_SHIM_REPORT_H
#define TEMPI_SHIM_REPORT_H

/* Collective over MPI_COMM_WORLD. */
void tempi_report_print(void);

#endif
