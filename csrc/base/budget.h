/* The bound on staging memory: TEMPI_STAGE_MAX counts the buffers in use of all its pools, plain
 * and pinned. What a pool keeps for later is bounded by the same figure in that pool. */
#ifndef TEMPI_BASE_BUDGET_H
#define TEMPI_BASE_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

/* Counts a buffer of `capacity` bytes for a message of `bytes`; false when that would pass the
 * bound. */
bool tempi_budget_take(int64_t bytes, int64_t capacity);
void tempi_budget_give(int64_t capacity);

#endif
