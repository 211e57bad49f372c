/* Short messages that tempi carries and a program repeats: blocking ones and those with a request
 * of their own, in host memory. What planning one finds out is known from those before it
 * (choose/repeated.h), so nothing is planned; one of 256 is, all the same. Where a GPU's driver may
 * be in the process all are planned. */
#ifndef TEMPI_SHIM_UNPLANNED_H
#define TEMPI_SHIM_UNPLANNED_H

#include "base/trace.h"
#include "shim/p2p/message.h"
#include "shim/p2p/posted_receives.h"
#include "transfer/staging.h"

typedef struct tempi_unplanned {
    const tempi_type *type;
    int64_t count, bytes; /* packed */
} tempi_unplanned;

/* Whether the message is one of these. False: take it (message.h).
 * What the word remembers may be of a communicator that is gone, with the same handle: so whether
 * the message needs a gap, as those of a process to itself (wire.h), is asked each time; last, as
 * planning asks it again. */
__attribute__((always_inline)) static inline bool tempi_unplanned_is(
    const void *buffer, MPI_Count count, MPI_Datatype datatype, tempi_operation operation,
    tempi_peer peer, tempi_unplanned *out)
{
    tempi_type *type = tempi_type_at_home(datatype);
    if (!type || (uint64_t)count - 1 >= type->unplanned_most || tempi_memory_mixed ||
        tempi_passing.disabled != 0 || tempi_trace_on ||
        !tempi_address_plausible(buffer, type->layout) ||
        !tempi_repeated_pass(&type->chooser.repeated[operation], tempi_message_key(peer, count),
                             1 << TEMPI_MESSAGE_OWN) ||
        (TEMPI_ABI == TEMPI_ABI_OPENMPI && tempi_posted_own(peer.comm, peer.rank)))
        return false;
    *out = (tempi_unplanned){type, count, count * type->size};
    return true;
}

/* The same; then it is counted as seen. */
__attribute__((always_inline)) static inline bool tempi_unplanned_take(
    const void *buffer, MPI_Count count, MPI_Datatype datatype, tempi_operation operation,
    tempi_peer peer, tempi_unplanned *out)
{
    if (!tempi_unplanned_is(buffer, count, datatype, operation, peer, out))
        return false;
    tempi_stat_add(TEMPI_STAT_calls_seen, 1);
    return true;
}

/* The same for a message that completes later: with memory for its packed bytes, which
 * tempi_unplanned_posted takes over. NULL: take the message. */
__attribute__((always_inline)) static inline char *tempi_unplanned_stage(
    const void *buffer, MPI_Count count, MPI_Datatype datatype, tempi_operation operation,
    tempi_peer peer, tempi_unplanned *out)
{
    if (!tempi_unplanned_is(buffer, count, datatype, operation, peer, out))
        return NULL;
    char *packed = operation == TEMPI_OP_RECV ? tempi_stage_get_received(out->bytes)
                                              : tempi_stage_get(out->bytes);
    if (packed)
        tempi_stat_add(TEMPI_STAT_calls_seen, 1);
    return packed;
}

static inline void tempi_unplanned_pack(const tempi_unplanned *m, const void *buffer, char *packed)
{
    tempi_pack(m->type->layout, m->count, buffer, 0, m->bytes, packed);
    tempi_message_count(tempi_stats_mine(), TEMPI_OP_SEND, m->type->layout, m->count, m->bytes);
}

/* The first n of its bytes, or all. */
static inline void tempi_unplanned_unpack(const tempi_unplanned *m, void *buffer,
                                          const char *packed, int64_t n)
{
    n = n < m->bytes ? n : m->bytes;
    tempi_unpack(m->type->layout, m->count, packed, 0, n, buffer);
    tempi_message_count(tempi_stats_mine(), TEMPI_OP_RECV, m->type->layout, m->count, n);
}

#endif
