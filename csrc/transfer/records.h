/* What tempi owes to a request. A record belongs to one incomplete, hence unique, request handle
 * (complete requests share handles on every library). Handles are uintptr_t here; this part knows
 * no MPI. A record is claimed (taken out of the table) before the library may free its handle, and
 * put back if the request turns out to be incomplete; so one thread at a time owns it.
 */
#ifndef TEMPI_TRANSFER_RECORDS_H
#define TEMPI_TRANSFER_RECORDS_H

#include "base/lock.h"
#include "pack/pack.h"

#include <stdbool.h>
#include <stdint.h>

/* The shim's, which defines them: this part only carries the pointers. */
struct tempi_record_ops;
struct tempi_typemap;
struct tempi_bounce;
struct tempi_posted;
struct tempi_mpi;

typedef struct tempi_record {
    uintptr_t request; /* the handle that the program holds */
    const struct tempi_record_ops *ops;
    bool receives;
    bool active;    /* persistent: started and not yet completed */
    bool settled;   /* the data has been moved, only the handle is left */
    bool cancelled; /* MPI_Cancel was called */
    bool gapped;    /* the bytes go with a gap before the last one: the shim's (wire.h) */
    tempi_op op;    /* op.packed is a buffer that the record owns (packed_buffer.h) */
    struct tempi_typemap *typemap; /* under TEMPI_CHECK */
    struct tempi_bounce *bounce;   /* host memory in place of device buffers; op is empty then */
    int error;                     /* an MPI error: packing, posting or unpacking failed */
    bool told;                     /* the communicator's error handler has heard of it */
    uintptr_t comm;                /* whose error handler hears of it */
    int64_t index;                 /* while claimed from an array of requests: its place there */
    struct tempi_record *next;     /* in the queue, the orphans, or the free list */
    struct tempi_record *beside;   /* in a claim: a queued send can be in both */

    /* A receive from the process itself. */
    struct tempi_posted *waits_in; /* the list that it is in; NULL: none */
    struct tempi_record *behind;   /* in that list */
    bool moved;                    /* its bytes are there before its message is */

    /* Proxy: how to post the send, and what came of it. */
    struct tempi_record *receive; /* whose memory op.into is; valid until it is posted */
    const struct tempi_mpi *mpi;  /* the functions that the call came by */
    tempi_ticket ticket;
    bool posted;
    uintptr_t inner;
    int mode;
    int destination;
    int tag;
} tempi_record;

/* A record without operations that owes nothing, or NULL. What only a proxy has is not set. */
tempi_record *tempi_record_new(void);
/* Gives back the record, its staging buffer and its hold on the layout. */
void tempi_record_free(tempi_record *record);

/* The table: open addressing, linear probing, at most a quarter full. */
typedef struct tempi_record_slot {
    uintptr_t request; /* 0: empty */
    tempi_record *record;
} tempi_record_slot;

typedef struct tempi_record_table {
    tempi_lock lock;
    int64_t count;
    unsigned shift; /* 64 - log2(capacity) */
    uintptr_t mask;
    tempi_record_slot *slots;
} tempi_record_table;

extern tempi_record_table tempi_records;

static inline bool tempi_records_any(void)
{
    return __atomic_load_n(&tempi_records.count, __ATOMIC_RELAXED) != 0;
}

static inline uintptr_t tempi_records_home(uintptr_t request)
{
    return (uintptr_t)(((uint64_t)request * 0x9E3779B97F4A7C15u) >> tempi_records.shift);
}

/* Caller holds tempi_records.lock. NULL if the request is not tracked. */
static inline tempi_record_slot *tempi_records_find(uintptr_t request)
{
    if (tempi_records.count == 0)
        return NULL;
    for (uintptr_t i = tempi_records_home(request);; i = (i + 1) & tempi_records.mask) {
        tempi_record_slot *slot = &tempi_records.slots[i];
        if (slot->request == request)
            return slot;
        if (slot->request == 0)
            return NULL;
    }
}

/* Caller holds the lock. */
void tempi_records_remove(tempi_record_slot *slot);

/* False when out of memory. record->request is the key and is not 0. */
bool tempi_records_put(tempi_record *record);
/* The record of a request, now owned by the caller; NULL if it is not tracked. */
tempi_record *tempi_records_claim(uintptr_t request);
/* Room for one more, so that the next put cannot fail. */
bool tempi_records_reserve(void);

#endif
