#include "topology/locality.h"
#include "base/stats.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A line comes from a core with the same last cache in 20 to 60 nanoseconds, from another one in
 * 100 to 300. */
enum { FAR = 85 /* nanoseconds */, KEPT = 5 };
/* Short messages between two looks: first until enough was seen, later on. A message counts as one
 * for each PIECE of its bytes more, as of long ones few fit between two moves. */
enum { SOON = 4, LATER = 64, PIECE = 4096 };

typedef struct line {
    _Alignas(TEMPI_DISTANCE_LINE) _Atomic uint64_t beats;
} line;

typedef struct sight {
    atomic_int until; /* messages, until the next look */
    atomic_bool far;
    uint64_t beats;      /* when it was looked at last */
    int32_t taken[KEPT]; /* nanoseconds, of the last looks that found it written */
    int looks;           /* those */
} sight;

struct tempi_locality {
    line *lines;
    int own;
    int n;
    int64_t clock; /* nanoseconds that asking it takes */
    atomic_flag busy;
    sight sights[];
};

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t clock_takes(void)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < 8; ++i) {
        const int64_t start = now(), taken = now() - start;
        least = taken < least ? taken : least;
    }
    return least;
}

tempi_locality *tempi_locality_open(void *lines, int own, int n)
{
    tempi_locality *made = NULL;
    if (own >= 0 && own < n)
        made = calloc(1, sizeof *made + (size_t)n * sizeof *made->sights);
    if (!made)
        return NULL;
    made->lines = lines;
    made->own = own;
    made->n = n;
    made->clock = clock_takes();
    atomic_flag_clear(&made->busy);
    return made;
}

void tempi_locality_close(tempi_locality *distance)
{
    free(distance);
}

/* By the majority of the last looks. */
static bool judge(const sight *s)
{
    const int n = s->looks < KEPT ? s->looks : KEPT;
    int far = 0;
    for (int i = 0; i < n; ++i)
        far += s->taken[i] > FAR;
    return 2 * far > n;
}

static void look(tempi_locality *d, int i)
{
    sight *s = &d->sights[i];
    tempi_stat_add(TEMPI_STAT_locality_probes, 1);
    const int64_t start = now();
    const uint64_t beats = atomic_load_explicit(&d->lines[i].beats, memory_order_relaxed);
    const int64_t taken = now() - start - d->clock;
    /* After it: a processor that fetches what lies beside would have fetched the other line before
     * it is timed. */
    atomic_fetch_add_explicit(&d->lines[d->own].beats, 1, memory_order_relaxed);
    if (beats == s->beats)
        return; /* it is in our own cache */
    s->beats = beats;
    s->taken[s->looks % KEPT] = taken < INT32_MAX ? (int32_t)taken : INT32_MAX;
    s->looks = s->looks + 1 < 2 * KEPT ? s->looks + 1 : KEPT;
    const bool far = judge(s);
    if (atomic_exchange_explicit(&s->far, far, memory_order_relaxed) != far)
        tempi_stat_add(TEMPI_STAT_locality_changes, 1);
}

void tempi_locality_look(tempi_locality *distance, int i)
{
    if (i < 0 || i >= distance->n ||
        atomic_flag_test_and_set_explicit(&distance->busy, memory_order_acquire))
        return; /* another thread is at it */
    look(distance, i);
    const int wait = distance->sights[i].looks < KEPT ? SOON : LATER;
    atomic_store_explicit(&distance->sights[i].until, wait, memory_order_relaxed);
    atomic_flag_clear_explicit(&distance->busy, memory_order_release);
}

bool tempi_locality_far(tempi_locality *distance, int i, int64_t bytes)
{
    if (i < 0 || i >= distance->n)
        return false;
    sight *s = &distance->sights[i];
    const int until = atomic_load_explicit(&s->until, memory_order_relaxed);
    const int64_t messages = 1 + bytes / PIECE;
    if (until >= messages)
        atomic_store_explicit(&s->until, until - (int)messages, memory_order_relaxed);
    else
        tempi_locality_look(distance, i);
    return atomic_load_explicit(&s->far, memory_order_relaxed);
}
