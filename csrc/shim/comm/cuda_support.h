/* MPIX_Query_cuda_support, MPIX_GPU_query_support and the info key mpi_memory_alloc_kinds. */
#ifndef TEMPI_SHIM_CUDA_SUPPORT_H
#define TEMPI_SHIM_CUDA_SUPPORT_H

struct tempi_interposer;

/* Looks up the library's own query functions, when the shim is loaded. */
void tempi_support_find(const struct tempi_interposer *interposer);

int tempi_MPIX_Query_cuda_support(void);
int tempi_MPIX_GPU_query_support(int gpu_type, int *is_supported);

#endif
