/* Per-request state. A record belongs to one incomplete, hence unique, request handle (complete
 * requests share handles on every library). Handles are uintptr_t here; this part is independent of
 * the MPI ABI. A record is claimed (taken out of the table) before the library may free its handle,
 * and put back if the request turns out to be incomplete; so one thread at a time owns it. */
#ifndef TEMPI_TRANSFER_RECORDS_H
#define TEMPI_TRANSFER_RECORDS_H

#include "base/hash.h"
#include "base/lock.h"
#include "base/passing.h"
#include "pack/pack.h"

#include <stdbool.h>
#include <stdint.h>

/* Defined by the shim: this part only carries the pointers. */
struct tempi_record_ops;
struct tempi_typemap;
struct tempi_bounce;
struct tempi_coll_request;
struct tempi_persistent_choice;
struct tempi_posted;
struct tempi_mpi;

typedef struct tempi_record {
    uintptr_t request; /* the program's handle */
    const struct tempi_record_ops *ops;
    bool receives;
    bool active;    /* persistent: started and not yet completed */
    bool settled;   /* the data has been moved, only the handle remains */
    bool cancelled; /* MPI_Cancel was called */
    bool ended;     /* claimed as complete without the library (shim/request/record_ops.h) */
    bool gapped;    /* sent with a gap before the last byte (shim/p2p/wire.h) */
    tempi_op op;    /* op.packed is owned by the record (packed_buffer.h) */
    int pin; /* of the buffer's allocation (memory/kind.h), while the request is pending; -1: none
              */
    struct tempi_typemap *typemap; /* under TEMPI_CHECK */
    struct tempi_bounce *bounce;   /* host memory in place of device buffers; op is empty then */
    struct tempi_coll_request *collective;  /* nonblocking or persistent; op is empty then */
    struct tempi_persistent_choice *choice; /* each start may take another method; NULL: none may */
    int error;                              /* an MPI error: packing, posting or unpacking failed */
    bool error_reported;                    /* reported to the communicator's error handler */
    uintptr_t comm;                         /* the communicator whose error handler is called */
    int64_t index;                          /* its index in the claimed array of requests */
    struct tempi_record *next;         /* in the deferred sends, the orphans, or the free list */
    struct tempi_record *next_claimed; /* in a claim: a deferred send can be in both */

    /* A receive from this process itself (loopback). */
    struct tempi_posted *posted_list; /* the list of posted receives that it is in; NULL: none */
    struct tempi_record *next_posted; /* next in that list */
    bool delivered;                   /* its bytes arrived before its message */

    /* Proxy: the arguments of the deferred send, and its result. */
    struct tempi_record
        *receive;                /* the receive that owns op.into; valid until the send is posted */
    const struct tempi_mpi *mpi; /* the MPI functions of the ABI that the call used */
    tempi_ticket ticket;
    bool posted;
    uintptr_t inner;
    int mode;
    int destination;
    int tag;
} tempi_record;

/* A record without operations, or NULL. Members that only a proxy uses are not set. */
tempi_record *tempi_record_new(void);
/* Frees the record, its staging buffer and its reference to the layout. */
void tempi_record_free(tempi_record *record);

/* The table: open addressing, linear probing, at most a quarter full. tempi_completing counts what
 * is in it. */
typedef struct tempi_record_slot {
    uintptr_t request; /* 0: empty */
    tempi_record *record;
} tempi_record_slot;

typedef struct tempi_record_table {
    tempi_lock lock;
    unsigned shift; /* 64 - log2(capacity) */
    uintptr_t mask;
    tempi_record_slot *slots;
} tempi_record_table;

extern tempi_record_table tempi_records;

static inline bool tempi_records_any(void)
{
    return __atomic_load_n(&tempi_completing->records, __ATOMIC_RELAXED) != 0;
}

static inline uintptr_t tempi_records_home(uintptr_t request)
{
    return (uintptr_t)(tempi_hash(request) >> tempi_records.shift);
}

/* Caller holds tempi_records.lock. NULL: the request is not tracked. */
static inline tempi_record_slot *tempi_records_find(uintptr_t request)
{
    if (tempi_completing->records == 0)
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
/* Takes the record of a request out of the table; NULL: the request is not tracked. */
tempi_record *tempi_records_claim(uintptr_t request);
/* Reserves room for one more, so that the next put cannot fail. */
bool tempi_records_reserve(void);

#endif
