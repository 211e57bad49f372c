/* Staging buffers: contiguous host memory that packed messages pass through. Pooled, because a
 * fresh large buffer costs a page fault every 4 KiB; bounded by TEMPI_STAGE_MAX. */
#ifndef TEMPI_TRANSFER_STAGING_H
#define TEMPI_TRANSFER_STAGING_H

#include <stdint.h>

/* At least `bytes` bytes aligned to 64; NULL if that would exceed the bound, or memory is out.
 * bytes == 0 gives a valid pointer as well. */
void *tempi_stage_get(int64_t bytes);
/* The same for bytes that another process reads where they are, in memory that rests before it is
 * written again: a line that the caches of the reader's core still have must be taken back first.
 */
void *tempi_stage_get_read(int64_t bytes);
/* The same for received bytes, aligned to 32 where the library's copies would otherwise be slow
 * (base/copy_bytes.h). */
void *tempi_stage_get_received(int64_t bytes);
/* The same, too, in memory that is not sent, unless they are short. Where cores have
 * no common cache, the lines of a buffer that the peer has read must be taken back from its cache
 * before they are written, and a copy by the kernel waits for each. */
void *tempi_stage_get_incoming(int64_t bytes);
/* The same without the bound, for a message that only tempi can carry; NULL only if memory is
 * out. */
void *tempi_stage_get_beyond(int64_t bytes);
void tempi_stage_put(void *buffer);
/* Frees all cached memory; buffers in use stay valid. */
void tempi_stage_trim(void);

#endif
