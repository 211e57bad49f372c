/* quiet_driver.c: threads that make it unquiet and quiet again, at random. While one has something
 * pending no call may find anything in the table, and at the end each finds what was put there.
 * Exits with 1 at the first error. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/thread.h"
#include "shim/request/quiet.h"

enum { THREADS = 4, STEPS = 20000, MOST = 3 };

static int entry;
static void *table[TEMPI_QUIET_TABLE];

static void check(bool finds, const char *when)
{
    void *const *now = TEMPI_PUBLISHED(tempi_quiet_table);
    for (int i = 0; i < TEMPI_QUIET_TABLE; i += TEMPI_QUIET_TABLE / 8)
        if (now[i] != (finds ? (void *)&entry : (void *)tempi_nothing)) {
            printf("%s: place %d leads elsewhere\n", when, i);
            exit(1);
        }
}

static void *turns(void *seed)
{
    unsigned state = *(unsigned *)seed;
    int pending = 0;
    for (int step = 0; step < STEPS; ++step) {
        state = state * 1103515245u + 12345u;
        const int more = pending == 0 || (pending < MOST && (state >> 16 & 1)) ? 1 : -1;
        tempi_unquiet_add(more);
        pending += more;
        if (pending > 0)
            check(false, "while something is pending");
    }
    tempi_unquiet_add(-pending);
    return NULL;
}

int main(void)
{
    unsigned seeds[THREADS];
    pthread_t threads[THREADS];
    check(false, "before there is a table");
    for (int i = 0; i < TEMPI_QUIET_TABLE; ++i)
        table[i] = &entry;
    tempi_quiet_use(table);
    check(true, "while it is quiet");
    turns(&(unsigned){7});
    check(true, "once one thread has nothing pending");
    tempi_threads_share();
    for (int i = 0; i < THREADS; ++i) {
        seeds[i] = 11u * (unsigned)i;
        if (pthread_create(&threads[i], NULL, turns, &seeds[i]) != 0)
            return 1;
    }
    for (int i = 0; i < THREADS; ++i)
        pthread_join(threads[i], NULL);
    check(true, "once no thread has anything pending");
    tempi_unquiet_add(1);
    tempi_quiet_use(NULL);
    tempi_unquiet_add(-1);
    check(false, "once there is no table");
    return 0;
}
