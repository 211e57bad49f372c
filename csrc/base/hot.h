/* Variables that nearly every MPI call reads, whatever their modules, lie side by side: between two
 * calls the program's data may have evicted all of them, and each cache line is fetched anew. */
#ifndef TEMPI_BASE_HOT_H
#define TEMPI_BASE_HOT_H

#define TEMPI_HOT __attribute__((section("tempi_hot")))

#endif
