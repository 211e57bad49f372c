/* The operations of a record in the life of its request, by the kind of request.
 *
 *   tempi_message_ops             the library's own request over packed bytes, once
 *   tempi_message_persistent_ops  the same, restarted by MPI_Start
 *   open_ops of shim/p2p/persistent.c   two of the library's own requests, one over the program's
 *                                 buffer and one over packed bytes: each start takes one
 *   tempi_proxy_ops               a generalized request for a send that is not posted yet, or for a
 *                                 receive whose bytes are still to be unpacked
 *   tempi_loopback_ops            the same for a send to oneself that is moved, not packed
 *   tempi_bounce_ops              the library's own request over bounce buffers, once
 *   tempi_bounce_persistent_ops   the same, restarted by MPI_Start
 *   once_ops, persistent_ops of shim/coll/coll_request.c   a collective: a generalized request
 *
 * Completion, deferred sends and MPI_Start call these and do not distinguish the kinds. */
#ifndef TEMPI_SHIM_RECORD_OPS_H
#define TEMPI_SHIM_RECORD_OPS_H

#include "shim/abi.h"
#include "transfer/records.h"

typedef struct tempi_record_ops tempi_record_ops;

struct tempi_record_ops {
    /* Before the library is asked about the request: gets the one behind the handle,
     * MPI_REQUEST_NULL if posting failed, and sees to it that the library learns of its end. False:
     * the handle is the library's own, or nothing was posted yet. */
    bool (*inner)(const tempi_record *record, MPI_Request *out);
    /* Whether it is complete, and the library was never asked about its handle, nor need be. NULL:
     * only the library knows. */
    bool (*ended)(const tempi_record *record);
    /* Before MPI_Start. True: *out must be packed; *rc: an MPI error code. */
    bool (*start)(tempi_record *record, tempi_op *out, int *rc);
    /* Before its packed bytes are posted: TEMPI_CHECK's comparison. */
    void (*check)(const tempi_record *record);
    /* The send could not be posted. */
    void (*refused)(tempi_record *record);
    /* The request is complete. True: *out must be unpacked. */
    bool (*arrived)(tempi_record *record, const MPI_Status *status, tempi_op *out);
    /* The same for a request that ended with `error`: for a message that was too long, *out is
     * the part that the library delivered. */
    bool (*cut)(tempi_record *record, int error, const MPI_Status *status, tempi_op *out);
    /* After MPI_Start, which starts the request behind the handle: the handle that it has now.
     * NULL: it starts the program's handle. */
    void (*started)(tempi_record *record, MPI_Request inner);
    /* The library has freed the request that was started. NULL: there is no other one. */
    void (*lost)(tempi_record *record);
    /* After settling: frees the record, or lets it rest until the next MPI_Start. */
    void (*finish)(tempi_record *record);
    /* The operations after the last restart; NULL: these. */
    const tempi_record_ops *once;
    /* MPI_Start starts nothing of the library's. */
    bool starts_alone;
    /* The received bytes do not depend on its status: errors of other requests do not affect it. */
    bool settles_without_status;
};

extern const tempi_record_ops tempi_message_ops, tempi_message_persistent_ops, tempi_proxy_ops,
    tempi_loopback_ops, tempi_bounce_ops, tempi_bounce_persistent_ops;

static inline bool tempi_record_is_persistent(const tempi_record *record)
{
    return record->ops->once != NULL;
}

/* The handle is gone, or will be freed after this completion. */
static inline void tempi_record_end_restarts(tempi_record *record)
{
    if (record->ops->once)
        record->ops = record->ops->once;
}

/* Persistent: the library has freed the request that was started, so the handle is gone. */
static inline void tempi_record_lose(tempi_record *record)
{
    if (record->ops->lost)
        record->ops->lost(record);
    tempi_record_end_restarts(record);
}

/* Shared entries of the tables above. */
bool tempi_record_has_no_inner(const tempi_record *record, MPI_Request *out);
bool tempi_record_never_starts(tempi_record *record, tempi_op *out, int *rc);
void tempi_record_needs_no_check(const tempi_record *record);
void tempi_record_is_refused(tempi_record *record);
bool tempi_record_was_not_cut(tempi_record *record, int error, const MPI_Status *status,
                              tempi_op *out);
bool tempi_message_arrived(tempi_record *record, const MPI_Status *status, tempi_op *out);
bool tempi_message_was_cut(tempi_record *record, int error, const MPI_Status *status,
                           tempi_op *out);
bool tempi_proxy_inner(const tempi_record *record, MPI_Request *out);
void tempi_proxy_finish(tempi_record *record);
/* Frees the record and all it owns. */
void tempi_record_release(tempi_record *record);
/* Puts it back in the table for the next start; frees it if there is no memory for that. */
void tempi_record_rest(tempi_record *record);

#endif
