/* thread_cache_driver.c: threads that take short staging buffers and records, pass some of them to
 * one another, and count. At the end nothing is lost, nothing is counted twice, and the caches of
 * the ended threads are back in the pools. Exits with 1 at the first error. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/stats.h"
#include "pack/parts.h"
#include "tempi.h"
#include "transfer/records.h"
#include "transfer/staging.h"

tempi_settings tempi_config = {.stage_max = 64 << 20};

/* Of a record's parts that this program leaves empty. */
void tempi_packed_put(tempi_op *op)
{
    (void)op;
}
void tempi_parts_delete(tempi_parts *parts)
{
    (void)parts;
}
void tempi_layout_release(const tempi_layout *layout)
{
    (void)layout;
}

enum { THREADS = 4, ROUNDS = 8, STEPS = 4000, HELD = 40 }; /* more in use than a thread caches */

static _Atomic(void *) swapped; /* a buffer that one thread took and another gives back */

static void check(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void *work(void *argument)
{
    const unsigned char mark = (unsigned char)(uintptr_t)argument;
    unsigned char *held[HELD] = {NULL};
    for (int step = 0; step < STEPS; step++) {
        unsigned char **slot = &held[step % HELD];
        if (*slot) {
            check((*slot)[0] == mark && (*slot)[1023] == mark, "a buffer has two owners");
            tempi_stage_put(__atomic_exchange_n(&swapped, *slot, __ATOMIC_ACQ_REL));
        }
        *slot = tempi_stage_get(1024);
        check(*slot != NULL, "no buffer");
        memset(*slot, mark, 1024);
        tempi_record *record = tempi_record_new();
        record->tag = mark;
        tempi_stat_add(TEMPI_STAT_sends, 1);
        tempi_stat_add(TEMPI_STAT_sent_bytes, 3);
        ++*tempi_stats_passed();
        check(record->tag == mark, "a record has two owners");
        tempi_record_free(record);
    }
    for (int i = 0; i < HELD; i++)
        tempi_stage_put(held[i]);
    return NULL;
}

static void round_of_threads(void)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        check(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0, "no thread");
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

int main(void)
{
    tempi_threads_share();
    for (int round = 1; round <= ROUNDS; round++) {
        round_of_threads();
        const uint64_t all = (uint64_t)round * THREADS * STEPS;
        check(tempi_stats_value(TEMPI_STAT_sends) == all, "a count is lost");
        check(tempi_stats_value(TEMPI_STAT_sent_bytes) == 3 * all, "an amount is lost");
        check(tempi_stats_value(TEMPI_STAT_calls_seen) == all, "a call that passed is lost");
        check(tempi_stats_value(TEMPI_STAT_fallback_rule) == all, "its reason is lost");
    }
    /* Ended threads gave theirs back: the pool did not grow with each round. */
    check(tempi_stats_value(TEMPI_STAT_stage_peak) <
              2 * THREADS * (HELD + TEMPI_THREAD_CACHE_MOST) * 1024,
          "threads take what they kept with them");
    tempi_stats_clear();
    check(tempi_stats_value(TEMPI_STAT_sends) == 0, "a reset leaves counts");
    check(tempi_stats_value(TEMPI_STAT_calls_seen) == 0, "a reset leaves calls that passed");
    tempi_stat_add(TEMPI_STAT_sends, 2);
    check(tempi_stats_value(TEMPI_STAT_sends) == 2, "a reset takes what comes after it");
    tempi_stage_put(swapped);
    tempi_stage_trim();
    puts("good");
    return 0;
}
