/* shim/bounce/bounce_descriptor.h: what a bounce is made of, for the files that make it: bounce.c,
 * bounce_descriptor.c, pending_bounce.c. */
#ifndef TEMPI_SHIM_HELD_H
#define TEMPI_SHIM_HELD_H

#include "base/lock.h"
#include "shim/bounce/bounce.h"
#include "transfer/bounce_buffer.h"

enum { TEMPI_BOUNCE_BUFFERS = 3 }; /* Compare_and_swap has as many */

/* One buffer of a call under way. */
typedef struct tempi_bounce_descriptor {
    int does;
    uint64_t waits; /* managed memory of these devices, a bit for each: the host works in it, once
                     * the program's streams are through with it */
    tempi_bounce_buffer shadow; /* empty where all is managed memory */
} tempi_bounce_descriptor;

struct tempi_bounce {
    tempi_owner owner;
    int n;
    tempi_bounce_descriptor buffers[TEMPI_BOUNCE_BUFFERS];
    int target;  /* of a lingering one-sided operation */
    int holders; /* a request's record, the list of those that linger, and who claimed it there */
    bool back;   /* it came back already; guarded by the lock */
    int partitions;     /* of a partitioned message; else 0 */
    bool *moved;        /* of these: which came back since the start; guarded by the lock */
    tempi_lock lock;    /* held while arrived partitions, or all of a shared one, come back */
    tempi_bounce *next; /* in the list of those, and in a claim */
};

/* Whether anything is to be done with the buffer: *h says what, and the buffer's `given` what to
 * hand to the library. A tempi_status. */
int tempi_bounce_describe(const tempi_owner *owner, tempi_bounce_argument *buffer,
                          tempi_bounce_descriptor *h, bool *held_it);
/* Brings back what was written: MPI_SUCCESS, or an error that was raised already. */
int tempi_bounce_drain(tempi_bounce *bounce);
/* The same for one that a request and a window's synchronisation may both end: it comes back once.
 */
int tempi_bounce_drain_once(tempi_bounce *bounce);
/* Into the list of those that linger, which holds it too. */
void tempi_bounce_list(tempi_bounce *bounce, int target);
/* Not in that list any more, if it was: its request is complete, and what that brought is here. */
void tempi_bounce_unlist(tempi_bounce *bounce);

#endif
