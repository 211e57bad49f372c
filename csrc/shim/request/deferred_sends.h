/* Deferred sends: those not yet posted because their pack is still running. Orphans: requests
 * that the program freed while they were active. While either exists, wrapped calls make
 * progress; else they pay one relaxed load.
 *
 * The list of deferred sends is first in, first out over all communicators, so MPI's order of
 * messages between a pair of processes holds in whatever order the packs finish. */
#ifndef TEMPI_SHIM_DEFERRED_SENDS_H
#define TEMPI_SHIM_DEFERRED_SENDS_H

#include "shim/abi.h"
#include "transfer/records.h"

/* Mode of a deferred send. Buffered sends are never deferred. */
typedef enum tempi_send_mode {
    TEMPI_SEND_STANDARD,
    TEMPI_SEND_SYNCHRONOUS,
    TEMPI_SEND_READY
} tempi_send_mode;

extern int64_t tempi_pending; /* deferred sends and orphans */

/* After tempi_memory_start. */
void tempi_deferred_start(void);

static inline bool tempi_pending_any(void)
{
    return __atomic_load_n(&tempi_pending, __ATOMIC_RELAXED) != 0;
}

/* Counts what is pending beside those. */
void tempi_pending_add(int64_t amount);
/* Of whoever counts there. */
typedef struct tempi_more {
    void (*progress)(void); /* without blocking */
    /* Returns when none of these requests depends on it. */
    void (*await)(int64_t n, const MPI_Request requests[]);
    /* Makes that no other process needs it, while this one may make no progress. */
    void (*settle)(void);
} tempi_more;

void tempi_set_more(const tempi_more *more);
extern const tempi_more *tempi_more_set;

/* NULL: nobody counts there. */
static inline const tempi_more *tempi_more_get(void)
{
    return __atomic_load_n(&tempi_more_set, __ATOMIC_ACQUIRE);
}

/* Before a call of the library that waits for these requests. */
static inline void tempi_before_waiting(int64_t n, const MPI_Request requests[])
{
    const tempi_more *more = tempi_more_get();
    if (more && tempi_pending_any() && requests)
        more->await(n, requests);
}

/* A generalized request that is not complete, and its end. */
int tempi_proxy_start(MPI_Request *proxy);
void tempi_proxy_end(MPI_Request *proxy);

/* Launches the gathered packs, posts packed sends, finishes completed orphans. Never blocks. */
void tempi_progress(void);
/* The same in a call that may be part of a burst: a nonblocking send or receive. Launches
 * nothing, so that the burst becomes one launch. */
void tempi_progress_gathering(void);

/* Before a call that sends, or completes requests: posts all deferred sends. */
void tempi_post_all(void);
/* Before any other call of the library that may wait for another process. */
void tempi_before_blocking(void);

/* False for a send that the library might refuse: it is posted at once, so that its own call
 * returns the error. */
bool tempi_deferred_takes(int destination, int tag, MPI_Comm comm);
/* Call when MPI_COMM_WORLD exists: reads the largest tag. */
void tempi_deferred_learn_tags(void);

/* Defers a send whose pack is in flight; *request becomes a generalized request. On failure the
 * caller still owns the record. */
int tempi_deferred_send(tempi_record *record, MPI_Request *request);
/* Whether a deferred send has not reached the library: a later send must not go there directly. */
bool tempi_deferred_any(void);

/* Finishes, in the background, a request that the program freed while it was active. */
void tempi_deferred_orphan(tempi_record *record);

/* For a receive that has arrived but is not unpacked: *request is the library's and becomes a
 * generalized request; the bytes are unpacked when the program completes it. On failure the
 * caller still owns the record. */
int tempi_deferred_arrived(tempi_record *record, MPI_Request *request);

/* At Finalize: posts all, and waits for orphans as long as a program could expect. */
void tempi_deferred_drain(void);

#endif
