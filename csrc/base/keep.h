/* What a thread keeps for itself where several call MPI: its part of the counters, and a few free objects of
 * each pool. A lock or an atomic addition is as dear as the packing of a short message (5 ns on Zen 4), and
 * a call would need a dozen. Below MPI_THREAD_MULTIPLE nothing is kept: there locks cost nothing. */
#ifndef TEMPI_BASE_KEEP_H
#define TEMPI_BASE_KEEP_H

#include "base/lock.h"
#include "base/thread.h"

#include <stdint.h>

typedef enum tempi_kept { TEMPI_KEPT_STAGING, TEMPI_KEPT_RECORDS, TEMPI_KEPT_KINDS } tempi_kept;

enum { TEMPI_KEEP_COUNTS = 96, TEMPI_KEEP_MOST = 64 };

typedef struct tempi_keep {
    uint64_t counts[TEMPI_KEEP_COUNTS]; /* by TEMPI_STAT_*; written by the thread, read by all */
    int n[TEMPI_KEPT_KINDS];
    void *kept[TEMPI_KEPT_KINDS][TEMPI_KEEP_MOST];
    struct tempi_keep *next, *previous;
} tempi_keep;

/* This thread's, new; it ends with the thread. NULL: no memory. */
tempi_keep *tempi_keep_make(void);
/* The sum of all threads' counters, those of ended threads included. */
uint64_t tempi_keep_count(int which);

static inline tempi_keep *tempi_keep_mine(void)
{
    tempi_keep *keep = tempi_this_thread.keep;
    return keep ? keep : tempi_keep_make();
}

/* NULL: none is kept. */
static inline void *tempi_kept_take(tempi_kept kind)
{
    if (!tempi_threads_multiple)
        return NULL;
    tempi_keep *keep = tempi_keep_mine();
    return keep && keep->n[kind] > 0 ? keep->kept[kind][--keep->n[kind]] : NULL;
}

void tempi_kept_set_home(tempi_kept kind, void (*home)(void *object));

/* False: it is to go to its pool. `home` brings it there when the thread ends. */
static inline bool tempi_kept_give(tempi_kept kind, void *object, void (*home)(void *object))
{
    if (!tempi_threads_multiple)
        return false;
    tempi_keep *keep = tempi_keep_mine();
    if (!keep || keep->n[kind] == TEMPI_KEEP_MOST)
        return false;
    if (keep->n[kind] == 0)
        tempi_kept_set_home(kind, home);
    keep->kept[kind][keep->n[kind]++] = object;
    return true;
}

#endif
