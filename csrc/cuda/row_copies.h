/* cuda/row_copies.h: a short message of few rows is copied to or from pinned memory by the driver's
 * pitched copy, where that takes less time than a kernel: a copy starts sooner, and does not wait
 * for its turn where processes share a device without CUDA's MPS; but each row takes some time. How
 * many rows is measured once for each device. */
#ifndef TEMPI_CUDA_ROW_COPIES_H
#define TEMPI_CUDA_ROW_COPIES_H

#include "cuda/batch.h"

/* Before the device's first operation that may be one, without its lock: measures, for about a
 * millisecond. */
void tempi_cuda_rows_settle(tempi_cuda_device *device, const tempi_op *op);
/* Whether that operation is copied, if it goes to or from pinned memory by itself. Measures, too.
 */
bool tempi_cuda_has_few_rows(const tempi_op *op);
/* Most rows of a piece that is copied; 0: none, or not yet known. */
int64_t tempi_cuda_copied_rows(tempi_cuda_device *device);

/* The most rows of which a copy is faster than a kernel, by a margin: from the seconds of a kernel
 * and of copies of few and of many rows. */
int64_t tempi_cuda_rows_by(double kernel, double few_rows, double many_rows);

#endif
