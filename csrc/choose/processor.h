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

/* How ranks of a node copy long messages directly, as far as a process can tell without the
 * library: by XPMEM if the kernel has its module, which libraries prefer, else by CMA unless Yama's
 * ptrace_scope forbids it; each unless an environment variable of the library turns it off.
 * `version`: the library's version string. */
typedef enum tempi_single_copy {
    TEMPI_SINGLE_COPY_NONE,
    TEMPI_SINGLE_COPY_CMA,
    TEMPI_SINGLE_COPY_XPMEM
} tempi_single_copy;
tempi_single_copy tempi_processor_single_copy(const char *version);

#endif
