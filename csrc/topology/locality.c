#include "topology/locality.h"
#include "base/clock.h"
#include "base/llc_samples.h"
#include "base/stats.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Bytes to a place in the same page of memory, which is mapped as a whole: so far that no
 * prefetcher fetches one with the other. */
enum { PAGE_MATE = 2048 };

/* Entries of a line for results about other ranks, at the rank modulo this. */
enum { RESULTS = (TEMPI_LOCALITY_LINE - sizeof(uint64_t)) / sizeof(uint32_t) };

typedef struct line {
    _Alignas(TEMPI_LOCALITY_LINE) _Atomic uint64_t beats;
    /* What both use, in the line of the lower rank; what it has found itself, in that of the higher
     * one. Ranks that share an entry use their own results. */
    _Atomic uint32_t results[RESULTS];
} line;

/* An entry: whether it has another LLC, how many results there were (modulo 2^COUNT_BITS), and the
 * rank + 1. */
enum { OTHER_BIT = 1, COUNT_BITS = 3, NAMED_AT = 1 + COUNT_BITS };

/* So many own results after the last one of the higher rank that still counts. */
enum { HEARD_FOR = 8 };

typedef struct peer_probes {
    atomic_int until; /* messages until the next probe */
    atomic_bool other_llc;
    uint64_t beats;            /* at the last probe */
    tempi_llc_samples samples; /* of probes that found the line written */
    bool found;                /* another LLC, by these */
    uint32_t results, heard;   /* their number; the peer's last entry about this rank */
    uint32_t since;            /* own results since it was written */
} peer_probes;

struct tempi_locality {
    line *lines;
    int own;
    int n;
    int64_t clock; /* nanoseconds that reading the clock takes */
    atomic_flag busy;
    peer_probes peers[];
};

static int64_t clock_takes(void)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < 8; ++i) {
        const int64_t start = tempi_clock_ns(), taken = tempi_clock_ns() - start;
        least = taken < least ? taken : least;
    }
    return least;
}

tempi_locality *tempi_locality_open(void *lines, int own, int n)
{
    tempi_locality *made = NULL;
    if (own >= 0 && own < n)
        made = calloc(1, sizeof *made + (size_t)n * sizeof *made->peers);
    if (!made)
        return NULL;
    made->lines = lines;
    made->own = own;
    made->n = n;
    made->clock = clock_takes();
    atomic_flag_clear(&made->busy);
    return made;
}

void tempi_locality_close(tempi_locality *locality)
{
    free(locality);
}

/* The higher rank's result counts as long as it has new ones. */
static bool is_heard(peer_probes *s, uint32_t theirs)
{
    s->since = theirs == s->heard ? s->since + 1 : 0;
    s->heard = theirs;
    return s->since < HEARD_FOR;
}

static uint32_t entry_about(int i, uint32_t results, bool other_llc)
{
    const uint32_t count = results % (1u << COUNT_BITS);
    return ((uint32_t)i + 1) << NAMED_AT | count << 1 | other_llc;
}

/* The result on which both ranks agree: the lower one publishes it. Another LLC only if both have
 * found that: a line that has left the caches comes as slowly, and one of the two may see only
 * such, where it writes more, or past the caches. */
static bool agreed(tempi_locality *d, int i)
{
    peer_probes *s = &d->peers[i];
    const bool lower = d->own < i;
    const uint32_t theirs = atomic_load_explicit(&d->lines[i].results[d->own % RESULTS],
                                                 memory_order_relaxed);
    const bool about_us = theirs >> NAMED_AT == (uint32_t)d->own + 1;
    bool both = s->found;
    if (!lower && about_us)
        both = theirs & OTHER_BIT;
    else if (lower && is_heard(s, theirs) && about_us)
        both = both && theirs & OTHER_BIT;
    atomic_store_explicit(&d->lines[d->own].results[i % RESULTS],
                          entry_about(i, ++s->results, lower ? both : s->found),
                          memory_order_relaxed);
    return both;
}

/* Threads may do so at the same time, and one write be lost. */
static void write_own_line(tempi_locality *d)
{
    _Atomic uint64_t *beats = &d->lines[d->own].beats;
    atomic_store_explicit(beats, atomic_load_explicit(beats, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/* So that the timed load need not look up the page's address, which takes as long as another LLC.
 * The page has more lines, or nothing. */
static void touch_page(const line *of)
{
    const uint64_t *there = (const uint64_t *)((uintptr_t)of ^ PAGE_MATE);
    const uint64_t touched = __atomic_load_n(there, __ATOMIC_RELAXED);
    __asm__ volatile("" ::"r"(touched)); /* before the clock is read */
}

/* The own line is written after the timed load: a processor that has learnt that one follows the
 * other would otherwise fetch the line before it is timed. */
static void probe(tempi_locality *d, int i)
{
    peer_probes *s = &d->peers[i];
    tempi_stat_add(TEMPI_STAT_locality_probes, 1);
    touch_page(&d->lines[i]);
    (void)tempi_clock_ns(); /* its code and data may have left the caches */
    const int64_t start = tempi_clock_ns();
    const uint64_t beats = atomic_load_explicit(&d->lines[i].beats, memory_order_relaxed);
    const int64_t taken = tempi_clock_ns() - start - d->clock;
    write_own_line(d);
    if (beats == s->beats)
        return; /* not written since: the line is in our own cache */
    s->beats = beats;
    tempi_llc_add(&s->samples, taken);
    s->found = tempi_llc_is_other(&s->samples, s->found);
    const bool other_llc = agreed(d, i);
    if (atomic_exchange_explicit(&s->other_llc, other_llc, memory_order_relaxed) != other_llc)
        tempi_stat_add(TEMPI_STAT_locality_changes, 1);
}

void tempi_locality_probe(tempi_locality *locality, int i)
{
    if (i < 0 || i >= locality->n ||
        atomic_flag_test_and_set_explicit(&locality->busy, memory_order_acquire))
        return; /* another thread is probing */
    probe(locality, i);
    atomic_store_explicit(&locality->peers[i].until,
                          tempi_llc_interval(&locality->peers[i].samples), memory_order_relaxed);
    atomic_flag_clear_explicit(&locality->busy, memory_order_release);
}

bool tempi_locality_is_other_llc(tempi_locality *locality, int i, int64_t bytes)
{
    if (i < 0 || i >= locality->n)
        return false;
    peer_probes *s = &locality->peers[i];
    if (bytes >= TEMPI_LLC_EVICTING)
        return atomic_load_explicit(&s->other_llc, memory_order_relaxed);
    const int until = atomic_load_explicit(&s->until, memory_order_relaxed);
    const int64_t messages = tempi_llc_weight(bytes);
    if (until >= messages) {
        atomic_store_explicit(&s->until, until - (int)messages, memory_order_relaxed);
        write_own_line(locality);
    } else {
        tempi_locality_probe(locality, i);
    }
    return atomic_load_explicit(&s->other_llc, memory_order_relaxed);
}
