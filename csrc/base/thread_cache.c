#include "base/thread_cache.h"

#include <pthread.h>
#include <stdlib.h>

static struct {
    tempi_lock lock;
    tempi_thread_cache *first;
    uint64_t ended[TEMPI_THREAD_CACHE_COUNTS]; /* of threads that have ended */
    void (*home[TEMPI_CACHED_KINDS])(void *object);
} all;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool has_key;

static void send_home(tempi_thread_cache *cache)
{
    for (int kind = 0; kind < TEMPI_CACHED_KINDS; ++kind)
        while (cache->n[kind] > 0)
            __atomic_load_n(&all.home[kind],
                            __ATOMIC_RELAXED)(cache->objects[kind][--cache->n[kind]]);
}

static void on_thread_end(void *value)
{
    tempi_thread_cache *cache = value;
    tempi_this_thread.cache = NULL;
    tempi_lock_acquire(&all.lock);
    for (int i = 0; i < TEMPI_THREAD_CACHE_COUNTS; ++i)
        all.ended[i] += cache->counts[i];
    if (cache->next)
        cache->next->previous = cache->previous;
    if (cache->previous)
        cache->previous->next = cache->next;
    else
        all.first = cache->next;
    tempi_lock_release(&all.lock);
    send_home(cache);
    free(cache);
}

static void make_key(void)
{
    has_key = pthread_key_create(&key, on_thread_end) == 0;
}

tempi_thread_cache *tempi_thread_cache_make(void)
{
    pthread_once(&once, make_key);
    tempi_thread_cache *cache = has_key ? calloc(1, sizeof *cache) : NULL;
    if (!cache)
        return NULL;
    if (pthread_setspecific(key, cache) != 0) {
        free(cache);
        return NULL;
    }
    tempi_lock_acquire(&all.lock);
    cache->next = all.first;
    if (cache->next)
        cache->next->previous = cache;
    all.first = cache;
    tempi_lock_release(&all.lock);
    tempi_this_thread.cache = cache;
    return cache;
}

void tempi_cached_set_home(tempi_cached kind, void (*home)(void *object))
{
    __atomic_store_n(&all.home[kind], home, __ATOMIC_RELAXED);
}

uint64_t tempi_thread_cache_count(int which)
{
    tempi_lock_acquire(&all.lock);
    uint64_t sum = all.ended[which];
    for (const tempi_thread_cache *cache = all.first; cache; cache = cache->next)
        sum += __atomic_load_n(&cache->counts[which], __ATOMIC_RELAXED);
    tempi_lock_release(&all.lock);
    return sum;
}
