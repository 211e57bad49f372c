/* The processor of this machine, as far as measured times hang on it, and whether the MPI library
 * may copy from one process to another by itself. */
#ifndef TEMPI_MODEL_PROCESSOR_H
#define TEMPI_MODEL_PROCESSOR_H

#include <stdbool.h>

/* All zero where the system does not tell. */
typedef struct tempi_processor {
    char vendor[16]; /* as "GenuineIntel" */
    int family, model;
    char isa[16]; /* of the host kernels */
    int l2, l3;   /* KiB */
} tempi_processor;

void tempi_processor_read(tempi_processor *out);

/* Whether ranks of a node copy long messages in one go (CMA): it is on unless an environment
 * variable of the library's or Yama's ptrace_scope turns it off. `version`: what the library says
 * of itself. */
bool tempi_processor_single_copy(const char *version);

#endif
