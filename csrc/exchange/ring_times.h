/* What a sender learns of its long flows through a ring, or past it: how long each took on both
 * sides, for the choice of a way (copy_choice.h), and now and then whether the receiver's core
 * shares a last-level cache with its own, as another way is the fastest then. */
#ifndef TEMPI_EXCHANGE_RING_TIMES_H
#define TEMPI_EXCHANGE_RING_TIMES_H

#include "exchange/ring.h"

/* ---- by the sender --------------------------------------------------------------------------- */

/* The record of a flow in that call: the last few are kept. */
static inline struct tempi_timed_flow *tempi_ring_timed(tempi_ring_end *end, uint64_t call)
{
    return &end->last[call % TEMPI_RING_TIMED];
}

/* Takes over what the receiver has told about flows before that call. */
void tempi_ring_learn(tempi_ring_end *end, uint64_t call);
/* Of flows of that class to that receiver, where it is now; `alone`: gathered, or one way. */
tempi_copy_choice *tempi_ring_choice(tempi_ring_end *end, bool alone, int class);
/* Whether the receiver is to time the beat of a flow of so many bytes. Then it was written, and the
 * flow's header is to follow at once. */
bool tempi_ring_beat(tempi_ring_end *end, uint64_t call, int64_t bytes);

/* ---- by the receiver ------------------------------------------------------------------------- */

/* How long the beat takes from the sender's core, in nanoseconds. */
int32_t tempi_ring_time_beat(const tempi_ring *ring);
/* Tells the sender how long a flow took here, and the beat; -1: it was not timed. */
void tempi_ring_report(tempi_ring *ring, uint64_t call, double seconds, int32_t latency);

#endif
