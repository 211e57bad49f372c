/* Sends that are not posted yet because their pack is still running, and requests that the program
 * freed while they were active. While either exists, something is pending and wrapped calls make
 * progress; else they pay one relaxed load.
 *
 * The queue is first in, first out over all communicators: MPI's order of messages between a pair
 * of processes holds, whatever order the packs finish in. */
#ifndef TEMPI_SHIM_QUEUE_H
#define TEMPI_SHIM_QUEUE_H

#include "shim/abi.h"
#include "transfer/records.h"

/* Of a queued send. Buffered sends are never queued. */
typedef enum tempi_send_mode {
    TEMPI_SEND_STANDARD,
    TEMPI_SEND_SYNCHRONOUS,
    TEMPI_SEND_READY
} tempi_send_mode;

extern int64_t tempi_pending; /* queued sends and orphans */

static inline bool tempi_pending_any(void)
{
    return __atomic_load_n(&tempi_pending, __ATOMIC_RELAXED) != 0;
}

/* Launches the packs that were gathered, posts what is packed, drains what has completed. Never
 * blocks. */
void tempi_progress(void);
/* The same from a call that may be in the middle of a burst: a nonblocking send or receive. It
 * launches nothing, so that a burst is one launch. */
void tempi_progress_gathering(void);

/* Before a call that may wait for another process, or that sends: everything queued is posted. */
void tempi_before_blocking(void);

/* False for a send that the library might refuse: it is posted at once, so that the error is that
 * call's own. */
bool tempi_deferred_takes(int destination, int tag, MPI_Comm comm);
/* MPI_COMM_WORLD is there and knows the largest tag. */
void tempi_deferred_learn_tags(void);

/* Queues a send whose pack is in flight; the program gets a generalized request. On failure the
 * record is still the caller's. */
int tempi_deferred_send(tempi_record *record, MPI_Request *request);
/* Some queued send has not reached the library: a later one must not go there directly. */
bool tempi_deferred_any(void);

/* A request that the program gave up while it was active: finished behind its back. */
void tempi_deferred_orphan(tempi_record *record);

/* The library's request of a receive that has brought its bytes already; they are unpacked when the
 * program completes the generalized request that it gets instead. On failure the record is still
 * the caller's. */
int tempi_deferred_arrived(tempi_record *record, MPI_Request *request);

/* At Finalize: posts all, and waits for orphans as long as a program could expect. */
void tempi_deferred_drain(void);

#endif
