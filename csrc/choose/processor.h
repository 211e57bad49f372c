/* The properties of this machine's processor that timings depend on, and whether the MPI library
 * may copy directly between processes. */
#ifndef TEMPI_CHOOSE_PROCESSOR_H
#define TEMPI_CHOOSE_PROCESSOR_H

#include <stdbool.h>

/* All zero if the system does not report them. */
typedef struct tempi_processor {
    char vendor[16]; /* e.g. "GenuineIntel" */
    int family, model;
    char isa[16]; /* the ISA of the host kernels */
    int l2, l3;   /* KiB */
} tempi_processor;

void tempi_processor_read(tempi_processor *out);

/* Whether ranks of a node copy long messages directly (CMA): on unless an environment variable of
 * the library or Yama's ptrace_scope turns it off. `version`: the library's version string. */
bool tempi_processor_single_copy(const char *version);

#endif
