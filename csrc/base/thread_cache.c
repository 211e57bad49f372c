#include "base/thread_cache.h"

#include <pthread.h>
#include <stdlib.h>

static struct {
    tempi_lock lock;
    tempi_thread_cache *first;
    uint64_t ended[TEMPI_THREAD_CACHE_COUNTS]; /* of threads that are gone */
    void (*home[TEMPI_CACHED_KINDS])(void *object);
} all;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool has_key;

static void send_home(tempi_thread_cache *keep)
{
    for (int kind = 0; kind < TEMPI_CACHED_KINDS; ++kind)
        while (keep->n[kind] > 0)
            __atomic_load_n(&all.home[kind], __ATOMIC_RELAXED)(keep->kept[kind][--keep->n[kind]]);
}

static void on_thread_end(void *value)
{
    tempi_thread_cache *keep = value;
    tempi_this_thread.keep = NULL;
    tempi_lock_acquire(&all.lock);
    for (int i = 0; i < TEMPI_THREAD_CACHE_COUNTS; ++i)
        all.ended[i] += keep->counts[i];
    if (keep->next)
        keep->next->previous = keep->previous;
    if (keep->previous)
        keep->previous->next = keep->next;
    else
        all.first = keep->next;
    tempi_lock_release(&all.lock);
    send_home(keep);
    free(keep);
}

static void make_key(void)
{
    has_key = pthread_key_create(&key, on_thread_end) == 0;
}

tempi_thread_cache *tempi_thread_cache_make(void)
{
    pthread_once(&once, make_key);
    tempi_thread_cache *keep = has_key ? calloc(1, sizeof *keep) : NULL;
    if (!keep)
        return NULL;
    if (pthread_setspecific(key, keep) != 0) {
        free(keep);
        return NULL;
    }
    tempi_lock_acquire(&all.lock);
    keep->next = all.first;
    if (keep->next)
        keep->next->previous = keep;
    all.first = keep;
    tempi_lock_release(&all.lock);
    tempi_this_thread.keep = keep;
    return keep;
}

void tempi_cached_set_home(tempi_cached kind, void (*home)(void *object))
{
    __atomic_store_n(&all.home[kind], home, __ATOMIC_RELAXED);
}

uint64_t tempi_thread_cache_count(int which)
{
    tempi_lock_acquire(&all.lock);
    uint64_t sum = all.ended[which];
    for (const tempi_thread_cache *keep = all.first; keep; keep = keep->next)
        sum += __atomic_load_n(&keep->counts[which], __ATOMIC_RELAXED);
    tempi_lock_release(&all.lock);
    return sum;
}
