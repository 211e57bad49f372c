/* What a record does in the life of its request, by what stands behind the program's handle.
 *
 *   tempi_message_ops             the library's own request over packed bytes, once
 *   tempi_message_persistent_ops  the same, restarted by MPI_Start
 *   tempi_proxy_ops               a generalized request for a send that is not posted yet, or for a
 *                                 receive whose bytes are still to be unpacked
 *   tempi_loopback_ops            the same for a send to oneself that is moved, not packed
 *   tempi_bounce_ops              the library's own request over bounce buffers, once
 *   tempi_bounce_persistent_ops   the same, restarted by MPI_Start
 *
 * Completion, the deferred sends and MPI_Start call these and know no kinds. */
#ifndef TEMPI_SHIM_REQUEST_RECORD_OPS_H
#define TEMPI_SHIM_REQUEST_RECORD_OPS_H

#include "shim/abi.h"
#include "transfer/records.h"

typedef struct tempi_record_ops tempi_record_ops;

struct tempi_record_ops {
    /* The library's request behind the handle, once it is there: MPI_REQUEST_NULL where posting
     * failed. False: the handle is the library's own, or nothing was posted yet. */
    bool (*inner)(const tempi_record *record, MPI_Request *out);
    /* Before MPI_Start: true: *out is to be packed; *rc: an MPI error. */
    bool (*start)(tempi_record *record, tempi_op *out, int *rc);
    /* Before its packed bytes are posted: under TEMPI_CHECK. */
    void (*check)(const tempi_record *record);
    /* It could not be posted. */
    void (*refused)(tempi_record *record);
    /* The request is complete. True: *out is still to be unpacked. */
    bool (*arrived)(tempi_record *record, const MPI_Status *status, tempi_op *out);
    /* The same of one that ended with `error`: of a message that was too long, the part that the
     * library brought. */
    bool (*cut)(tempi_record *record, int error, const MPI_Status *status, tempi_op *out);
    /* After settling: the record is freed, or rests until the next MPI_Start. */
    void (*finish)(tempi_record *record);
    /* The operations when nothing is left to restart; NULL: these. */
    const tempi_record_ops *once;
    /* What it brings does not depend on its status: an error of another request is none of its. */
    bool settles_without_status;
};

extern const tempi_record_ops tempi_message_ops, tempi_message_persistent_ops, tempi_proxy_ops,
    tempi_loopback_ops, tempi_bounce_ops, tempi_bounce_persistent_ops;

static inline bool tempi_record_is_persistent(const tempi_record *record)
{
    return record->ops->once != NULL;
}

/* Its handle is gone, or is to be freed after this completion. */
static inline void tempi_record_end_restarts(tempi_record *record)
{
    if (record->ops->once)
        record->ops = record->ops->once;
}

/* Parts of the tables above. */
bool tempi_record_has_no_inner(const tempi_record *record, MPI_Request *out);
bool tempi_record_never_starts(tempi_record *record, tempi_op *out, int *rc);
void tempi_record_needs_no_check(const tempi_record *record);
void tempi_record_is_refused(tempi_record *record);
bool tempi_message_arrived(tempi_record *record, const MPI_Status *status, tempi_op *out);
bool tempi_message_was_cut(tempi_record *record, int error, const MPI_Status *status,
                           tempi_op *out);
bool tempi_proxy_inner(const tempi_record *record, MPI_Request *out);
void tempi_proxy_finish(tempi_record *record);
/* Frees the record and what it holds. */
void tempi_record_release(tempi_record *record);
/* Puts it back, to be started again; freed where there is no memory for that. */
void tempi_record_rest(tempi_record *record);

#endif
