/* Does the library below take device addresses? */
#ifndef TEMPI_SHIM_AWARE_H
#define TEMPI_SHIM_AWARE_H

#include <stdbool.h>

extern bool tempi_aware;

struct tempi_door;

/* Finds what can be asked, when the shim is loaded. */
void tempi_aware_find(const struct tempi_door *door);
/* Asks it, or TEMPI_CUDA_AWARE, once MPI is there. */
void tempi_aware_learn(void);

/* What the library itself says, whatever TEMPI_CUDA_AWARE does. */
bool tempi_aware_says(void);

static inline bool tempi_library_aware(void)
{
    return tempi_aware;
}

#endif
