/* Whether the MPI library is CUDA-aware. */
#ifndef TEMPI_SHIM_CUDA_AWARE_H
#define TEMPI_SHIM_CUDA_AWARE_H

#include <stdbool.h>

extern bool tempi_cuda_aware;

struct tempi_interposer;

/* Looks up the library's query function, when the shim is loaded. */
void tempi_cuda_aware_find(const struct tempi_interposer *interposer);
/* Sets tempi_cuda_aware from TEMPI_CUDA_AWARE or the library's answer, after MPI has started. */
void tempi_cuda_aware_determine(void);

/* The library's own answer, without TEMPI_CUDA_AWARE. */
bool tempi_cuda_aware_says(void);

static inline bool tempi_library_cuda_aware(void)
{
    return tempi_cuda_aware;
}

#endif
