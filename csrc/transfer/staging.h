/* Staging buffers: contiguous host memory that packed messages pass through. Pooled, because a
 * fresh large buffer costs a page fault every 4 KiB; bounded by TEMPI_STAGE_MAX. */
#ifndef TEMPI_TRANSFER_STAGE_H
#define TEMPI_TRANSFER_STAGE_H

#include <stdint.h>

/* At least `bytes` bytes aligned to 64, or NULL when that would pass the bound or memory is out.
 * bytes == 0 gives a valid pointer as well. */
void *tempi_stage_get(int64_t bytes);
/* The same past the bound, for a message that nobody else can carry; NULL only when memory is out.
 */
void *tempi_stage_get_beyond(int64_t bytes);
void tempi_stage_put(void *buffer);
/* Gives all cached memory back; buffers in use stay valid. */
void tempi_stage_trim(void);

#endif
