/* The bound on staging memory: TEMPI_STAGE_MAX counts the buffers in use of all pools, pageable and
 * pinned. The free buffers of a pool are bounded by the same figure in that pool. */
#ifndef TEMPI_BASE_BUDGET_H
#define TEMPI_BASE_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

/* Counts a buffer of `capacity` bytes for a message of `bytes`; false if that would exceed the
 * bound. */
bool tempi_budget_take(int64_t bytes, int64_t capacity);
void tempi_budget_give(int64_t capacity);

#endif
