/* Short messages that tempi carries and a program repeats: blocking, in host memory, to or from
 * another process. What planning one finds out is known from those before it (choose/repeated.h),
 * so nothing is planned: it takes some 300 instructions on each side, without those of the copy,
 * where a message that is planned takes twice as many. One of 64 is planned all the same. */
#ifndef TEMPI_SHIM_BRIEF_H
#define TEMPI_SHIM_BRIEF_H

#include "base/trace.h"
#include "shim/p2p/message.h"

typedef struct tempi_brief {
    const tempi_type *type;
    int64_t count, bytes; /* packed */
} tempi_brief;

/* Whether the message is one of these. False: take it (message.h). */
__attribute__((always_inline)) static inline bool tempi_brief_take(
    const void *buffer, MPI_Count count, MPI_Datatype datatype, tempi_operation operation,
    tempi_peer peer, tempi_brief *out)
{
    tempi_type *type = tempi_type_at_home(datatype);
    if (!type || type->handle != datatype || (uint64_t)count - 1 >= type->brief ||
        tempi_memory_mixed || tempi_threads_disabled != 0 || tempi_trace_on ||
        !tempi_repeated_is_tried(&type->chooser.repeated[operation]) ||
        !tempi_address_plausible(buffer, type->layout) ||
        !tempi_repeated_pass(&type->chooser.repeated[operation], tempi_message_key(peer, count),
                             1 << TEMPI_MESSAGE_OWN))
        return false;
    *out = (tempi_brief){type, count, count * type->size};
    return true;
}

static inline void tempi_brief_note(const tempi_brief *brief, tempi_operation operation)
{
    const bool sent = operation == TEMPI_OP_SEND;
    tempi_thread_cache *mine = tempi_stats_mine();
    tempi_stat_add_to(mine, TEMPI_STAT_calls_seen, 1);
    tempi_stat_add_to(mine, sent ? TEMPI_STAT_sends : TEMPI_STAT_recvs, 1);
    tempi_stat_add_to(mine, sent ? TEMPI_STAT_sent_bytes : TEMPI_STAT_recv_bytes, brief->bytes);
    tempi_stat_add_to(mine, TEMPI_STAT_runs, brief->type->layout->runs * brief->count);
}

static inline void tempi_brief_pack(const tempi_brief *brief, const void *buffer, char *packed)
{
    tempi_pack(brief->type->layout, brief->count, buffer, 0, brief->bytes, packed);
    tempi_brief_note(brief, TEMPI_OP_SEND);
}

/* The first n of its bytes, or all. */
static inline void tempi_brief_unpack(const tempi_brief *brief, void *buffer, const char *packed,
                                      int64_t n)
{
    tempi_unpack(brief->type->layout, brief->count, packed, 0, n < brief->bytes ? n : brief->bytes,
                 buffer);
    tempi_brief_note(brief, TEMPI_OP_RECV);
}

#endif
