/* cuda.h: the part of the CUDA driver API that the benchmark uses, loaded at run time: compiling
 * needs no CUDA header or library. */
#ifndef TEMPI_BENCH_HALO_CUDA_H
#define TEMPI_BENCH_HALO_CUDA_H
#include <mpi.h>
#include <stddef.h>

/* A box in memory: `pitch` bytes from row to row, `height` rows from plane to plane. */
struct cuda_box {
    void *base;
    int on_host;
    size_t pitch, height;
    size_t x, y, z; /* origin: x in bytes, y in rows, z in planes */
};

/* Loads the driver and selects a device for this rank, round-robin on each node. Returns NULL, or
 * the reason why there is no device. */
const char *cuda_start(MPI_Comm comm);
int cuda_emulated(void);
const char *cuda_device_name(void);

void *cuda_allocate(size_t bytes);
void cuda_release(void *data);
void *cuda_pinned_allocate(size_t bytes);
void cuda_pinned_release(void *data);

/* These abort the job when the driver fails. */
void cuda_copy(void *to, const void *from, size_t bytes);
void cuda_copy_box(const struct cuda_box *to, const struct cuda_box *from, size_t width,
                   size_t rows, size_t planes);
void cuda_wait(void); /* waits for the box copies */
#endif
