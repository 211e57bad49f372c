/* The thread cache: a thread's part of the counters and a few free objects of each pool, used where
 * several threads call MPI. A lock or an atomic addition takes as long as packing a short message
 * (5 ns on Zen 4), and a call would need a dozen. Below MPI_THREAD_MULTIPLE nothing is cached:
 * locks cost nothing there. */
#ifndef TEMPI_BASE_THREAD_CACHE_H
#define TEMPI_BASE_THREAD_CACHE_H

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
    /* By TEMPI_STAT_*; written by this thread, read by all. */
    uint64_t counts[TEMPI_THREAD_CACHE_COUNTS];
    int n[TEMPI_CACHED_KINDS];
    void *objects[TEMPI_CACHED_KINDS][TEMPI_THREAD_CACHE_MOST];
    struct tempi_thread_cache *next, *previous;
} tempi_thread_cache;

/* Creates this thread's cache, which ends with the thread. NULL: out of memory. */
tempi_thread_cache *tempi_thread_cache_make(void);
/* The sum over all threads, including those that have ended. */
uint64_t tempi_thread_cache_count(int which);

static inline tempi_thread_cache *tempi_thread_cache_mine(void)
{
    tempi_thread_cache *cache = tempi_this_thread.cache;
    return cache ? cache : tempi_thread_cache_make();
}

/* Takes a cached object; NULL: there is none. */
static inline void *tempi_cached_take(tempi_cached kind)
{
    if (!tempi_threads_are_shared())
        return NULL;
    tempi_thread_cache *cache = tempi_thread_cache_mine();
    return cache && cache->n[kind] > 0 ? cache->objects[kind][--cache->n[kind]] : NULL;
}

void tempi_cached_set_home(tempi_cached kind, void (*home)(void *object));

/* Caches an object; false: return it to its pool instead. `home` returns it there when the thread
 * ends. */
static inline bool tempi_cached_give(tempi_cached kind, void *object, void (*home)(void *object))
{
    if (!tempi_threads_are_shared())
        return false;
    tempi_thread_cache *cache = tempi_thread_cache_mine();
    if (!cache || cache->n[kind] == TEMPI_THREAD_CACHE_MOST)
        return false;
    if (cache->n[kind] == 0)
        tempi_cached_set_home(kind, home);
    cache->objects[kind][cache->n[kind]++] = object;
    return true;
}

#endif
