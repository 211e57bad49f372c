/* memory/copy.h: copies between memories of any kinds. */
#ifndef TEMPI_MEMORY_COPY_H
#define TEMPI_MEMORY_COPY_H

#include "pack/pack.h"

/* Copies n bytes, ordered after the program's stream (device.h: tempi_cuda_stream_after) of every
 * device involved; returns when complete. Host to host is memcpy. The ranges must not overlap. */
int tempi_memory_copy(void *dst, const void *src, int64_t n);
/* The same without waiting: the ticket is done when the copy is complete. */
int tempi_memory_copy_submit(void *dst, const void *src, int64_t n, tempi_ticket *out);

#endif
