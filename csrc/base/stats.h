/* Counters of this process. One table names them; tempi.h reads them by index. */
#ifndef TEMPI_BASE_STATS_H
#define TEMPI_BASE_STATS_H

#include "base/device_methods.h"
#include "base/passing.h"
#include "base/thread_cache.h"

#include <stdint.h>

/* clang-format off */
#define TEMPI_STAT_OF_METHOD(X, number, name, how)                                                 \
    X(method_##name, "messages, packs and unpacks of device memory: " how)
#define TEMPI_STATS_TABLE(X)                                                                       \
    X(sends, "sends carried packed by tempi")                                                      \
    X(sent_bytes, "bytes in them")                                                                 \
    X(recvs, "receives unpacked by tempi")                                                         \
    X(recv_bytes, "bytes in them")                                                                 \
    X(packs, "MPI_Pack calls served by tempi")                                                     \
    X(packed_bytes, "bytes in them")                                                               \
    X(unpacks, "MPI_Unpack calls served by tempi")                                                 \
    X(unpacked_bytes, "bytes in them")                                                             \
    X(runs, "contiguous runs copied by them")                                   \
    X(collectives, "calls of collectives carried through shared memory (TEMPI_COLLECTIVES)")      \
    X(collectives_split, "calls of collectives of several nodes carried in part")                  \
    X(collective_bytes, "bytes that this process sent in them, to itself too")                     \
    X(attached_bytes, "bytes that this process received from memory of others that it attached (TEMPI_XPMEM)") \
    X(mapped_bytes, "bytes that this process received from mapped memory of others (MPI_Alloc_mem, tempi.empty)") \
    X(remote_bytes, "bytes packed and unpacked in them for processes of other nodes")              \
    X(refused_shared_memory, "communicators without shared memory, whose collectives are the library's") \
    X(deferred, "sends deferred until their pack was done")                                   \
    X(types, "datatypes of the program that were decoded")                               \
    X(calls_seen, "calls with a derived datatype that tempi examined")                            \
    X(model_choices, "choices predicted from the calibrated tables (each is then cached)")      \
    X(model_outside, "of these, for messages larger than any that was calibrated")        \
    X(model_samples, "times of real work that corrected the tables (TEMPI_MODEL_UPDATE)")            \
    X(model_again, "choices predicted again after a correction")                     \
    X(model_changed, "of these, choices that changed")                                      \
    X(model_tried, "calls by the method that was not chosen, to time it")                     \
    X(kernels_tuned, "shapes whose fastest kernel was measured on real calls (TEMPI_AUTOTUNE)") \
    X(kernels_changed, "of these, shapes with another kernel than the default")                  \
    X(kernels_later, "kernels that became the fastest of their shape later in the process")       \
    X(packs_tuned, "types and sizes whose MPI_Pack and MPI_Unpack were timed both ways (TEMPI_AUTOTUNE)") \
    X(packs_changed, "of these, decided against the tables or the built-in rule")              \
    X(messages_tuned, "trials of messages on real rounds, led by this process (TEMPI_AUTOTUNE)")   \
    X(messages_changed, "of these, ended with another method")                                    \
    X(messages_streamed, "messages packed past the caches, or received in memory of their own, in one of these methods") \
    X(locality_probes, "probes of the locality of another rank of this node (TEMPI_LOCALITY)")              \
    X(locality_changes, "locality class changes")                         \
    X(fallback_rule, "left to the library: it is expected to be as fast")                              \
    X(fallback_disabled, "left to the library: tempi was disabled by the thread")                      \
    X(fallback_stage, "left to the library: staging would exceed TEMPI_STAGE_MAX")                       \
    X(fallback_memory, "left to the library: the buffer is not pageable host memory")                     \
    X(fallback_type, "left to the library: a datatype that tempi could not decode or was not committed") \
    X(fallback_first, "left to the library: the first messages of a datatype of many blocks, often its only ones") \
    X(fallback_function, "left to the library: calls with a derived datatype of functions other than those of messages and packs") \
    X(fallback_argument, "left to the library: an argument that it has to check")                      \
    X(fallback_quirk, "left to the library, which is known to deliver wrong blocks in them: calls of neighbors")  \
    X(quirks, "messages of a class of datatypes that this library is known to pack or carry incorrectly")           \
    X(stage_peak, "largest staging memory in use by one rank, bytes, pageable and pinned")           \
    X(device_packs, "packs done by a device")                                                      \
    X(device_packed_bytes, "bytes in them")                                                        \
    X(device_unpacks, "unpacks done by a device")                                                  \
    X(device_unpacked_bytes, "bytes in them")                                                      \
    X(launches, "kernels launched")                                                                \
    X(device_copies, "copies by the CUDA driver")                                                  \
    X(device_copied_bytes, "bytes in them")                                                        \
    X(staged_bytes, "bytes of messages that went through a device buffer to or from the host")     \
    X(pageable_pieces, "pieces of messages above TEMPI_STAGE_MAX that went through pinned memory") \
    X(pointer_queries, "pointer queries to the CUDA driver")                           \
    X(refused_device_memory, "device buffers refused: TEMPI_DEVICE_MAX, or the device is full")    \
    X(refused_pinned_memory, "pinned buffers refused: TEMPI_STAGE_MAX, or out of memory")          \
    X(refused_kernels, "device operations refused: no kernels for the device")                     \
    X(cuda_failures, "calls to the CUDA driver that failed")                                       \
    X(cuda_repeated, "launches that failed and were repeated")                               \
    X(cuda_lost, "devices lost: the GPU path is off from then on")                                 \
    X(contexts, "CUDA contexts made by the program whose memory was used")                       \
    X(contexts_gone, "of these, destroyed by the program before MPI ended")                        \
    X(fallback_cuda_aware, "left to the library: contiguous device memory on a CUDA-aware library")          \
    X(device_errors, "messages that ended with an error because a device failed")                   \
    X(method_changed, "messages of device memory by another method, because buffers ran out")  \
    TEMPI_DEVICE_METHODS(TEMPI_STAT_OF_METHOD, X)                                                     \
    X(bounced, "calls on device memory that used bounce buffers: the library is not CUDA-aware") \
    X(bounced_bytes, "bytes copied for them, in and out")                                          \
    X(bounce_errors, "of these, ended with an error: out of memory, a device, or not possible") \
    X(mixed, "messages whose bytes lie in several memories")                                      \
    X(self_moves, "messages and blocks to oneself that went from strided memory to strided memory")          \
    X(peer_moves, "blocks of collectives that a device copied from memory of another process (TEMPI_CUDA_IPC)") \
    X(peer_moved_bytes, "bytes in them")                                                           \
    X(orphans, "requests freed by the program while active")                                       \
    X(checks, "packs and unpacks repeated by TEMPI_CHECK")                                         \
    X(check_failures, "of these, differences found")
/* clang-format on */

#define TEMPI_STATS_ENUM(name, help) TEMPI_STAT_##name,
enum { TEMPI_STATS_TABLE(TEMPI_STATS_ENUM) TEMPI_STATS_COUNT };
#undef TEMPI_STATS_ENUM
/* Calls that were left to the library without being examined: part of calls_seen and of
 * fallback_rule, counted once. */
enum { TEMPI_STAT_passed = TEMPI_STATS_COUNT, TEMPI_STATS_COUNTED };

_Static_assert((int)TEMPI_STATS_COUNTED <= (int)TEMPI_THREAD_CACHE_COUNTS,
               "a thread cache has a slot for each counter");

/* Counts from outside the thread caches; tempi_stats_value adds both. */
extern uint64_t tempi_stats[TEMPI_STATS_COUNT];

/* Clears these counters; tempi_stats_reset also clears those per function (fallback.h). */
void tempi_stats_clear(void);

/* The cache that counts for this thread; NULL: it counts in tempi_stats. To add to several
 * counters, get it once. */
static inline tempi_thread_cache *tempi_stats_mine(void)
{
    return tempi_threads_are_shared() ? tempi_thread_cache_mine() : NULL;
}

static inline void tempi_stat_add_to(tempi_thread_cache *mine, int which, int64_t amount)
{
    if (mine)
        __atomic_store_n(&mine->counts[which], mine->counts[which] + (uint64_t)amount,
                         __ATOMIC_RELAXED);
    else if (tempi_threads_are_shared())
        __atomic_fetch_add(&tempi_stats[which], (uint64_t)amount, __ATOMIC_RELAXED);
    else
        tempi_stats[which] += (uint64_t)amount;
}

static inline void tempi_stat_add(int which, int64_t amount)
{
    tempi_stat_add_to(tempi_stats_mine(), which, amount);
}

/* This thread's TEMPI_STAT_passed; NULL: it needs a thread cache first. */
static inline uint64_t *tempi_stats_passed(void)
{
    if (__builtin_expect(!tempi_threads_are_shared(), 1))
        return &tempi_passing.passed;
    tempi_thread_cache *const cache = tempi_this_thread.cache;
    return cache ? &cache->counts[TEMPI_STAT_passed] : NULL;
}

#endif
