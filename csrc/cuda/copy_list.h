/* cuda/copy_list.h: copies of a batch that do not depend on each other, in one call of the driver
 * where it has one (cuMemcpyBatchAsync, since CUDA 12.8; by its CUDA 13 signature). */
#ifndef TEMPI_CUDA_COPY_LIST_H
#define TEMPI_CUDA_COPY_LIST_H

#include "cuda/device.h"
#include "cuda/plan.h"

/* Zero at first. */
typedef struct tempi_copy_list {
    tempi_cuda_address *dst, *src;
    size_t *bytes;
    int n, room;
} tempi_copy_list;

/* Enqueues one copy at once. */
int tempi_cuda_copy(tempi_cuda_stream stream, uint64_t dst, uint64_t src, int64_t n);
/* The same of a plan's, which may be of several rows. */
int tempi_cuda_copy_planned(tempi_cuda_stream stream, const tempi_device_copy *copy);

int tempi_copy_list_add(tempi_copy_list *list, uint64_t dst, uint64_t src, int64_t n);
/* Enqueues all copies, in any order. `stream` is not the legacy default stream. */
int tempi_copy_list_run(const tempi_copy_list *list, tempi_cuda_stream stream);
void tempi_copy_list_free(tempi_copy_list *list);

#endif
