/* Does the library below take device addresses? */
#ifndef TEMPI_SHIM_AWARE_H
#define TEMPI_SHIM_AWARE_H

#include <stdbool.h>

extern bool tempi_cuda_aware;

struct tempi_interposer;

/* Finds what can be asked, when the shim is loaded. */
void tempi_cuda_aware_find(const struct tempi_interposer *interposer);
/* Asks it, or TEMPI_CUDA_AWARE, once MPI is there. */
void tempi_cuda_aware_learn(void);

/* What the library itself says, whatever TEMPI_CUDA_AWARE does. */
bool tempi_cuda_aware_says(void);

static inline bool tempi_library_cuda_aware(void)
{
    return tempi_cuda_aware;
}

#endif
