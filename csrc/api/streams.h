/* api/streams.h: tempi's work in the order of the program's own streams, for tempi.h.
 *
 * A pack that was asked for in a stream of the program runs in tempi's: that waits for theirs
 * before it, and theirs for it. Nobody waits for such a pack here, so its batch is kept until it is
 * done.
 */
#ifndef TEMPI_CUDA_PROGRAM_H
#define TEMPI_CUDA_PROGRAM_H

/* Waits for what is under way. */
void tempi_streams_stop(void);

#endif
