/* The engine's state per thread. Initial-exec TLS: every MPI call reads it, and libtempi.so is
 * loaded at or soon after program start, while the static TLS block still has space. */
#ifndef TEMPI_BASE_THREAD_H
#define TEMPI_BASE_THREAD_H

#include <stdint.h>

typedef struct tempi_thread {
    int disabled; /* nesting depth of tempi_disable() */
    int posting;  /* posting deferred sends: a callback must not start another round */
    /* Depth of library functions that call other MPI functions, which are not the program's calls.
     */
    int inside;
    int collecting;                   /* it holds the lock of shim/coll/coll_progress.c */
    int kernel_trials;                /* calls of kernels that were timed (pack/kernel_trials.h) */
    struct tempi_thread_cache *cache; /* thread_cache.h; NULL: none yet */
} tempi_thread;

extern _Thread_local tempi_thread tempi_this_thread __attribute__((tls_model("initial-exec")));

#endif
