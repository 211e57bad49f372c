#include "transfer/staging.h"
#include "base/allocate.h"
#include "base/budget.h"
#include "base/config.h"
#include "base/copy_bytes.h"
#include "base/lock.h"
#include "base/thread_cache.h"
#include "transfer/slab.h"

#include <stdlib.h>

/* Size classes: four per power of two, from 256 bytes, so at most a quarter is wasted. */
enum { SMALLEST_SHIFT = 8, STEPS = 4, CLASSES = (48 - SMALLEST_SHIFT) * STEPS, ALIGNMENT = 64 };

typedef enum purpose { OUTGOING, INCOMING, READ, PURPOSES } purpose;

typedef struct header {
    int64_t capacity;
    tempi_slab *slab; /* the slab that it was cut from; NULL: memory of its own */
    int32_t class;
    purpose use;
    struct header *next;
    int64_t since; /* pool.given, when it was lent */
} header;

/* Free buffers, those that are used next first. */
typedef struct list {
    header *first, *last;
} list;

_Static_assert(sizeof(header) <= ALIGNMENT, "the header fits in front of the aligned buffer");

/* A short message takes only as long as a few divisions and locks. So short buffers share one class
 * and stay counted in the budget while free; their number and share of the bound are limited. */
enum { SHORT = 1 << 10, SHORT_CLASS = 2 * STEPS, SHORTS = 256, SHORTS_SHARE = 16 };
/* With a smaller bound there are no thread caches. */
enum { ROOM_FOR_THREADS = 16 << 20 };
/* Bytes of other buffers before one is used again that another process has read; and their share of
 * the bound at most. */
enum { REST = 8 << 20, REST_SHARE = 16 };

static struct {
    tempi_lock lock;
    int64_t used;   /* bytes in use, free short buffers included */
    int64_t cached; /* bytes in the free lists */
    int64_t given;  /* bytes of buffers to be read, so far */
    int64_t lent;   /* of those in use */
    list free[PURPOSES][CLASSES];
    header *shorts;
    int64_t nshorts; /* free short buffers */
} pool;

static int64_t class_capacity(int class)
{
    const int64_t base = (int64_t)1 << (SMALLEST_SHIFT + class / STEPS);
    return base + base / STEPS * (class % STEPS);
}

static int class_of(int64_t bytes)
{
    if (bytes <= SHORT)
        return SHORT_CLASS;
    const int log = 63 - __builtin_clzll((unsigned long long)(bytes - 1));
    const int64_t base = (int64_t)1 << log;
    const int step = (int)((bytes - 1 - base) / (base / STEPS));
    return (log - SMALLEST_SHIFT) * STEPS + step + 1;
}

/* A shifted buffer begins less than ALIGNMENT behind its place. */
static header *header_of(void *buffer)
{
    return (header *)(((uintptr_t)buffer & ~(uintptr_t)(ALIGNMENT - 1)) - ALIGNMENT);
}

static void drop(header *h)
{
    if (h->slab)
        tempi_slab_release(h->slab);
    else
        free(h);
}

/* Frees the short buffers' share of the budget; returns its bytes. */
static int64_t drop_shorts(void)
{
    const int64_t bytes = pool.nshorts * class_capacity(SHORT_CLASS);
    while (pool.shorts) {
        header *h = pool.shorts;
        pool.shorts = h->next;
        drop(h);
    }
    pool.nshorts = 0;
    pool.used -= bytes;
    return bytes;
}

static header *pop(list *from)
{
    header *h = from->first;
    if (h) {
        from->first = h->next;
        pool.cached -= h->capacity;
    }
    return h;
}

/* Those that are to be read rest: the longest at rest is used first. */
static void push(list *to, header *h)
{
    const bool rests = h->use == READ && to->first;
    header **at = rests ? &to->last->next : &to->first;
    h->next = rests ? NULL : to->first;
    *at = h;
    if (!h->next)
        to->last = h;
    pool.cached += h->capacity;
}

static void drop_list(list *of)
{
    for (header *h; (h = pop(of)) != NULL;)
        drop(h);
}

static void drop_cached(void)
{
    for (int c = 0; c < CLASSES; ++c) {
        for (int u = 0; u < PURPOSES; ++u)
            drop_list(&pool.free[u][c]);
    }
}

static header *allocate(int64_t capacity)
{
    tempi_slab *slab = NULL;
    const int64_t bytes = capacity + ALIGNMENT + TEMPI_COPY_SHIFT_MOST;
    const bool in_slab = capacity >= TEMPI_SLAB_LEAST && capacity < TEMPI_SLAB_MOST;
    header *h = in_slab ? tempi_slab_cut(bytes, &slab) : tempi_allocate((size_t)bytes);
    if (h)
        h->slab = slab;
    return h;
}

static header *fresh(int class, purpose use, int64_t capacity)
{
    header *h = allocate(capacity);
    if (!h) {
        drop_cached();
        h = allocate(capacity);
    }
    if (h) {
        h->capacity = capacity;
        h->class = class;
        h->use = use;
    }
    return h;
}

static header *short_get(void)
{
    header *mine = tempi_cached_take(TEMPI_CACHED_STAGING);
    if (mine)
        return mine;
    tempi_lock_acquire(&pool.lock);
    header *h = pool.shorts;
    if (h) {
        pool.shorts = h->next;
        --pool.nshorts;
    }
    tempi_lock_release(&pool.lock);
    return h;
}

/* False: the buffer takes the general path. */
static bool short_put(header *h)
{
    tempi_lock_acquire(&pool.lock);
    const int64_t share = tempi_config.stage_max / SHORTS_SHARE / SHORT;
    const bool kept = pool.nshorts < (share < SHORTS ? share : SHORTS);
    if (kept) {
        h->next = pool.shorts;
        pool.shorts = h;
        ++pool.nshorts;
    }
    tempi_lock_release(&pool.lock);
    return kept;
}

/* If the budget does not suffice, frees the short buffers' share and tries again. */
static bool budget_take(int64_t bytes, int64_t capacity)
{
    if (tempi_budget_take(capacity, capacity))
        return true;
    tempi_lock_acquire(&pool.lock);
    const int64_t freed = drop_shorts();
    tempi_lock_release(&pool.lock);
    tempi_budget_give(freed);
    return tempi_budget_take(bytes, capacity);
}

static bool has_rested(const header *h)
{
    const int64_t share = tempi_config.stage_max / REST_SHARE;
    return h && pool.given - h->since >= (share < REST ? share : REST);
}

static void lend(const header *h)
{
    if (h->use != READ)
        return;
    pool.given += h->capacity;
    pool.lent += h->capacity;
}

/* Buffers in use were given out after this one, if they come back in their order. */
static void take_back(header *h)
{
    if (h->use != READ)
        return;
    pool.lent -= h->capacity;
    h->since = pool.given - pool.lent;
}

static void *take(int64_t bytes, purpose use)
{
    header *h = (uint64_t)bytes <= SHORT ? short_get() : NULL;
    if (h)
        return (char *)h + ALIGNMENT;
    if (bytes < 0 || bytes > tempi_config.stage_max)
        return NULL;
    const int class = class_of(bytes);
    if (class >= CLASSES)
        return NULL;
    if (class == SHORT_CLASS && use == READ)
        use = OUTGOING;
    const int64_t capacity = class_capacity(class);
    if (!budget_take(bytes, capacity))
        return NULL;
    tempi_lock_acquire(&pool.lock);
    list *from = &pool.free[use][class];
    const bool fits = pool.used + pool.cached + capacity <= tempi_config.stage_max;
    h = use == READ && fits && !has_rested(from->first) ? NULL : pop(from);
    if (!h) {
        if (!fits)
            drop_cached();
        h = fresh(class, use, capacity);
    }
    if (h) {
        pool.used += capacity;
        lend(h);
    }
    tempi_lock_release(&pool.lock);
    if (!h)
        tempi_budget_give(capacity);
    return h ? (char *)h + ALIGNMENT : NULL;
}

void *tempi_stage_get(int64_t bytes)
{
    return take(bytes, OUTGOING);
}

void *tempi_stage_get_read(int64_t bytes)
{
    return take(bytes, READ);
}

/* Each buffer has room for it, so that sent and received bytes of a size share buffers. */
static void *take_shifted(int64_t bytes, purpose use)
{
    char *buffer = take(bytes, use);
    return buffer ? buffer + tempi_copy_shift(bytes) : NULL;
}

void *tempi_stage_get_received(int64_t bytes)
{
    return take_shifted(bytes, OUTGOING);
}

void *tempi_stage_get_incoming(int64_t bytes)
{
    return take_shifted(bytes, INCOMING);
}

enum { BEYOND = -1 }; /* class of a buffer outside the pool */

void *tempi_stage_get_beyond(int64_t bytes)
{
    header *h = bytes < 0 ? NULL : tempi_allocate((size_t)bytes + ALIGNMENT);
    if (!h)
        return NULL;
    h->class = BEYOND;
    return (char *)h + ALIGNMENT;
}

/* Returns a buffer to the pool. */
static void put(void *object)
{
    header *h = object;
    if (h->class == SHORT_CLASS && short_put(h))
        return;
    if (h->class == BEYOND) {
        free(h);
        return;
    }
    const int64_t capacity = h->capacity;
    tempi_lock_acquire(&pool.lock);
    take_back(h);
    push(&pool.free[h->use][h->class], h);
    pool.used -= capacity;
    tempi_lock_release(&pool.lock);
    tempi_budget_give(capacity);
}

void tempi_stage_put(void *buffer)
{
    if (!buffer)
        return;
    header *h = header_of(buffer);
    if (h->class == SHORT_CLASS && tempi_config.stage_max >= ROOM_FOR_THREADS &&
        tempi_cached_give(TEMPI_CACHED_STAGING, h, put))
        return;
    put(h);
}

void tempi_stage_trim(void)
{
    tempi_lock_acquire(&pool.lock);
    const int64_t freed = drop_shorts();
    drop_cached();
    tempi_lock_release(&pool.lock);
    tempi_budget_give(freed);
}
