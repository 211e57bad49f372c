/* bounce_descriptor.h: the structure of a bounce, for bounce.c, bounce_descriptor.c and
 * pending_bounce.c. */
#ifndef TEMPI_SHIM_BOUNCE_DESCRIPTOR_H
#define TEMPI_SHIM_BOUNCE_DESCRIPTOR_H

#include "base/lock.h"
#include "shim/bounce/bounce.h"
#include "transfer/bounce_buffer.h"

enum { TEMPI_BOUNCE_BUFFERS = 3 }; /* MPI_Compare_and_swap has three */

/* One buffer of an active call. */
typedef struct tempi_bounce_descriptor {
    int does;
    uint64_t waits; /* bit mask of devices: managed memory that the host may use only after the
                       program's streams on that device are idle */
    tempi_bounce_buffer host; /* empty if all of it is managed memory */
} tempi_bounce_descriptor;

struct tempi_bounce {
    tempi_owner owner;
    int n;
    tempi_bounce_descriptor buffers[TEMPI_BOUNCE_BUFFERS];
    int target;         /* of a pending one-sided operation */
    int holders;        /* references: a request's record, the pending list, a claim */
    bool back;          /* already copied back; guarded by the lock */
    int partitions;     /* of a partitioned message; else 0 */
    bool *copied;       /* for each partition: copied back since the start; guarded by the lock */
    tempi_lock lock;    /* held while partitions, or a shared bounce, are copied back */
    tempi_bounce *next; /* in the pending list and in a claim */
};

/* Sets *needed if the call needs a bounce for the buffer; then *h describes it, and the buffer's
 * `given` is the address for the library. Returns a tempi_status. */
int tempi_bounce_describe(const tempi_owner *owner, tempi_bounce_argument *buffer,
                          tempi_bounce_descriptor *h, bool *needed);
/* Copies back the written bytes. Returns MPI_SUCCESS or an error that was already raised. */
int tempi_bounce_drain(tempi_bounce *bounce);
/* The same for a bounce that both a request and a window's synchronisation may end: it is copied
 * back only once. */
int tempi_bounce_drain_once(tempi_bounce *bounce);
/* Adds it to the pending list, which gets its own reference. */
void tempi_bounce_list(tempi_bounce *bounce, int target);
/* Removes it from the pending list, if it is there: its request is complete and its bytes have
 * arrived. */
void tempi_bounce_unlist(tempi_bounce *bounce);

#endif
