/* What the engine keeps per thread. Initial-exec: read at every MPI call, and libtempi.so is loaded
 * at program start or early in it, while the static TLS block still has room. */
#ifndef TEMPI_BASE_THREAD_H
#define TEMPI_BASE_THREAD_H

#include <stdint.h>

typedef struct tempi_thread {
    int disabled; /* nesting of tempi_disable() */
    int posting;  /* inside the posting of queued sends: a callback must not start another */
    int inside;   /* a function of the library that works by others of MPI's: those are not the
                     program's calls */
    struct tempi_thread_cache *keep; /* thread_cache.h; NULL: nothing yet */
} tempi_thread;

extern _Thread_local tempi_thread tempi_this_thread __attribute__((tls_model("initial-exec")));

#endif
