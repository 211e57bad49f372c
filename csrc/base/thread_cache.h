/* What a thread keeps for itself where several call MPI: its part of the counters, and a few free
 * objects of each pool. A lock or an atomic addition is as dear as the packing of a short message
 * (5 ns on Zen 4), and a call would need a dozen. Below MPI_THREAD_MULTIPLE nothing is kept: there
 * locks cost nothing. */
#ifndef TEMPI_BASE_KEEP_H
#define TEMPI_BASE_KEEP_H

#include "base/lock.h"
#include "base/thread.h"

#include <stdint.h>

typedef enum tempi_cached {
    TEMPI_CACHED_STAGING,
    TEMPI_CACHED_RECORDS,
    TEMPI_CACHED_KINDS
} tempi_cached;

enum { TEMPI_THREAD_CACHE_COUNTS = 96, TEMPI_THREAD_CACHE_MOST = 64 };

typedef struct tempi_thread_cache {
    uint64_t
        counts[TEMPI_THREAD_CACHE_COUNTS]; /* by TEMPI_STAT_*; written by the thread, read by all */
    int n[TEMPI_CACHED_KINDS];
    void *kept[TEMPI_CACHED_KINDS][TEMPI_THREAD_CACHE_MOST];
    struct tempi_thread_cache *next, *previous;
} tempi_thread_cache;

/* This thread's, new; it ends with the thread. NULL: no memory. */
tempi_thread_cache *tempi_thread_cache_make(void);
/* The sum of all threads' counters, those of ended threads included. */
uint64_t tempi_thread_cache_count(int which);

static inline tempi_thread_cache *tempi_thread_cache_mine(void)
{
    tempi_thread_cache *keep = tempi_this_thread.keep;
    return keep ? keep : tempi_thread_cache_make();
}

/* NULL: none is kept. */
static inline void *tempi_cached_take(tempi_cached kind)
{
    if (!tempi_threads_multiple)
        return NULL;
    tempi_thread_cache *keep = tempi_thread_cache_mine();
    return keep && keep->n[kind] > 0 ? keep->kept[kind][--keep->n[kind]] : NULL;
}

void tempi_cached_set_home(tempi_cached kind, void (*home)(void *object));

/* False: it is to go to its pool. `home` brings it there when the thread ends. */
static inline bool tempi_cached_give(tempi_cached kind, void *object, void (*home)(void *object))
{
    if (!tempi_threads_multiple)
        return false;
    tempi_thread_cache *keep = tempi_thread_cache_mine();
    if (!keep || keep->n[kind] == TEMPI_THREAD_CACHE_MOST)
        return false;
    if (keep->n[kind] == 0)
        tempi_cached_set_home(kind, home);
    keep->kept[kind][keep->n[kind]++] = object;
    return true;
}

#endif
