/* Counters of this process. One table names them; tempi.h reads them by index. */
#ifndef TEMPI_BASE_STATS_H
#define TEMPI_BASE_STATS_H

#include "base/lock.h"

#include <stdint.h>

#define TEMPI_STATS_TABLE(X)                                                                       \
    X(sends, "sends carried packed by tempi")                                                      \
    X(sent_bytes, "bytes in them")                                                                 \
    X(recvs, "receives unpacked by tempi")                                                         \
    X(recv_bytes, "bytes in them")                                                                 \
    X(packs, "MPI_Pack calls served by tempi")                                                     \
    X(packed_bytes, "bytes in them")                                                               \
    X(unpacks, "MPI_Unpack calls served by tempi")                                                 \
    X(unpacked_bytes, "bytes in them")                                                             \
    X(runs, "separate contiguous copies that these took in all")                                   \
    X(deferred, "sends that waited in the queue for their pack")                                   \
    X(types, "datatypes decoded")                                                                  \
    X(calls_seen, "calls with a derived datatype that tempi looked at")                            \
    X(left_rule, "left to the library: the rule expects it to be as fast")                         \
    X(left_disabled, "left to the library: tempi was disabled by the thread")                      \
    X(left_stage, "left to the library: staging would pass TEMPI_STAGE_MAX")                       \
    X(left_memory, "left to the library: the buffer is not plain host memory")                     \
    X(left_type, "left to the library: a datatype that tempi could not decode or was not committed") \
    X(left_argument, "left to the library: an argument that it should judge")                      \
    X(known_wrong, "messages of a class that this library is known to pack wrongly")               \
    X(stage_peak, "largest staging memory in use by one rank, bytes")                                          \
    X(orphans, "requests freed by the program while active")                                       \
    X(checks, "packs and unpacks repeated by TEMPI_CHECK")                                         \
    X(check_failures, "of these, how many differed")

#define TEMPI_STATS_ENUM(name, help) TEMPI_STAT_##name,
enum { TEMPI_STATS_TABLE(TEMPI_STATS_ENUM) TEMPI_STATS_COUNT };
#undef TEMPI_STATS_ENUM

extern uint64_t tempi_stats[TEMPI_STATS_COUNT];

static inline void tempi_stat_add(int which, int64_t amount)
{
    if (tempi_threads_multiple)
        __atomic_fetch_add(&tempi_stats[which], (uint64_t)amount, __ATOMIC_RELAXED);
    else
        tempi_stats[which] += (uint64_t)amount;
}

#endif
