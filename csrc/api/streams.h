/* api/streams.h: tempi's work in the order of the program's own streams, for tempi.h.
 *
 * A pack requested in a stream of the program runs in tempi's stream: that waits for the program's
 * stream before, and the program's stream waits for it after. Nothing else waits for such a pack,
 * so its batch is retained until it is done. */
#ifndef TEMPI_API_STREAMS_H
#define TEMPI_API_STREAMS_H

/* Waits for all pending batches. */
void tempi_streams_stop(void);

#endif
