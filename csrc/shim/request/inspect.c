/* Probes requests without completing them; cancels and frees them. */
#include "base/log.h"
#include "base/stats.h"
#include "shim/impl.h"
#include "shim/request/request.h"

#include <stdlib.h>

/* flag == 1 means that the operation is complete and the program may read its buffer: the
 * received bytes are unpacked now, though the handle stays valid. */
static int probe(const struct tempi_mpi *next, MPI_Request request, int *flag, MPI_Status *status)
{
    tempi_record *record = tempi_records_any() ? tempi_records_claim(tempi_handle(request)) : NULL;
    if (!record)
        return next->Request_get_status(request, flag, status);
    MPI_Status own, *known = status == MPI_STATUS_IGNORE ? &own : status;
    (void)record->ops->inner(record, &request);
    known->MPI_ERROR = MPI_SUCCESS;
    const int rc = next->Request_get_status(request, flag, known);
    if (rc == MPI_SUCCESS && *flag && record->active && known->MPI_ERROR == MPI_SUCCESS)
        tempi_request_settle(record, MPI_SUCCESS, known);
    if (!tempi_records_put(record))
        TEMPI_LOG(TEMPI_LOG_ERROR,
                  "out of memory: cannot track a request; its receive may be incomplete");
    return rc;
}

int tempi_impl_Request_get_status(const struct tempi_mpi *next, MPI_Request request, int *flag,
                                  MPI_Status *status)
{
    if (tempi_pending_any())
        tempi_progress();
    return flag ? probe(next, request, flag, status)
                : next->Request_get_status(request, flag, status);
}

/* MPI-4.1 defines the three array forms through Request_get_status; so does tempi, because some
 * libraries lack them. */
int tempi_impl_Request_get_status_all(const struct tempi_mpi *next, int count,
                                      const MPI_Request requests[], int *flag, MPI_Status given[])
{
    if (tempi_pending_any())
        tempi_progress();
    int all = 1;
    for (int i = 0; i < count && all; ++i) {
        const int rc = probe(next, requests[i], &all, MPI_STATUS_IGNORE);
        if (rc != MPI_SUCCESS)
            return rc;
    }
    /* Statuses are written only if all are complete. */
    for (int i = 0; i < count && all && given != MPI_STATUSES_IGNORE; ++i) {
        int done;
        const int rc = probe(next, requests[i], &done, &given[i]);
        if (rc != MPI_SUCCESS)
            return rc;
    }
    *flag = all;
    return MPI_SUCCESS;
}

/* ---- any, some ------------------------------------------------------------------------------- */

/* Tracked requests are examined one by one. The others go to the library's own function, which
 * alone can distinguish a complete request from an inactive persistent one; the tracked ones do
 * not, because MPICH 5.0 makes persistent requests inactive here. */

enum { FEW = 32 };

typedef struct array {
    MPI_Request *untracked; /* the untracked requests; tracked ones are null here */
    MPI_Request few[FEW];
    bool active; /* a tracked one is active */
} array;

/* False: out of memory. */
static bool array_open(array *a, int count, const MPI_Request requests[])
{
    a->active = false;
    a->untracked = count <= FEW ? a->few : malloc((size_t)count * sizeof *a->untracked);
    if (!a->untracked)
        return false;
    tempi_lock_acquire(&tempi_records.lock);
    for (int i = 0; i < count; ++i)
        a->untracked[i] = tempi_records_find(tempi_handle(requests[i])) ? MPI_REQUEST_NULL
                                                                        : requests[i];
    tempi_lock_release(&tempi_records.lock);
    return true;
}

static void array_close(array *a)
{
    if (a->untracked != a->few)
        free(a->untracked);
}

/* Whether the request is tracked and was started. */
static bool tracked_active(const array *a, int i, MPI_Request request)
{
    if (request == MPI_REQUEST_NULL || a->untracked[i] != MPI_REQUEST_NULL)
        return false;
    tempi_lock_acquire(&tempi_records.lock);
    const tempi_record_slot *slot = tempi_records_find(tempi_handle(request));
    const bool active = slot && slot->record->active;
    tempi_lock_release(&tempi_records.lock);
    return active;
}

/* Libraries without the function cannot tell whether a request is inactive: they report it as
 * complete. */
static int untracked_any(const struct tempi_mpi *next, int count, const MPI_Request untracked[],
                         int *index, int *flag, MPI_Status *status)
{
    if (next->Request_get_status_any)
        return next->Request_get_status_any(count, untracked, index, flag, status);
    bool none = true;
    *flag = 0;
    for (int i = 0; i < count; ++i) {
        if (untracked[i] == MPI_REQUEST_NULL)
            continue;
        none = false;
        *index = i;
        const int rc = next->Request_get_status(untracked[i], flag, status);
        if (rc != MPI_SUCCESS || *flag)
            return rc;
    }
    *index = MPI_UNDEFINED;
    *flag = none;
    if (!none)
        return MPI_SUCCESS;
    /* The library makes the empty status for the null request, except for the error. */
    int ignored;
    const int rc = next->Request_get_status(MPI_REQUEST_NULL, &ignored, status);
    if (rc == MPI_SUCCESS && status != MPI_STATUS_IGNORE)
        status->MPI_ERROR = MPI_SUCCESS;
    return rc;
}

int tempi_impl_Request_get_status_any(const struct tempi_mpi *next, int count,
                                      const MPI_Request requests[], int *index, int *flag,
                                      MPI_Status *status)
{
    if (tempi_pending_any())
        tempi_progress();
    array a;
    if (!array_open(&a, count, requests))
        return MPI_ERR_NO_MEM;
    int rc = MPI_SUCCESS, done = 0;
    for (int i = 0; i < count && rc == MPI_SUCCESS && !done; ++i) {
        if (!tracked_active(&a, i, requests[i]))
            continue;
        a.active = true;
        rc = probe(next, requests[i], &done, status);
        *index = i;
    }
    *flag = done;
    if (rc == MPI_SUCCESS && !done) {
        rc = untracked_any(next, count, a.untracked, index, flag, status);
        if (*index == MPI_UNDEFINED && a.active)
            *flag = 0;
    }
    array_close(&a);
    return rc;
}

static int untracked_some(const struct tempi_mpi *next, int count, const MPI_Request untracked[],
                          int *outcount, int indices[], MPI_Status given[])
{
    if (next->Request_get_status_some)
        return next->Request_get_status_some(count, untracked, outcount, indices, given);
    bool none = true;
    int n = 0;
    for (int i = 0; i < count; ++i) {
        int done;
        if (untracked[i] == MPI_REQUEST_NULL)
            continue;
        none = false;
        const int rc = next->Request_get_status(
            untracked[i], &done, given == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &given[n]);
        if (rc != MPI_SUCCESS)
            return rc;
        if (done)
            indices[n++] = i;
    }
    *outcount = none ? MPI_UNDEFINED : n;
    return MPI_SUCCESS;
}

int tempi_impl_Request_get_status_some(const struct tempi_mpi *next, int count,
                                       const MPI_Request requests[], int *outcount, int indices[],
                                       MPI_Status given[])
{
    if (tempi_pending_any())
        tempi_progress();
    array a;
    if (!array_open(&a, count, requests))
        return MPI_ERR_NO_MEM;
    int rc = MPI_SUCCESS, n = 0;
    for (int i = 0; i < count && rc == MPI_SUCCESS; ++i) {
        int done = 0;
        if (!tracked_active(&a, i, requests[i]))
            continue;
        a.active = true;
        rc = probe(next, requests[i], &done,
                   given == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &given[n]);
        if (done)
            indices[n++] = i;
    }
    int more = 0;
    if (rc == MPI_SUCCESS)
        rc = untracked_some(next, count, a.untracked, &more, indices + n,
                            given == MPI_STATUSES_IGNORE ? given : given + n);
    if (more == MPI_UNDEFINED && a.active)
        more = 0;
    *outcount = more == MPI_UNDEFINED ? MPI_UNDEFINED : n + more;
    array_close(&a);
    return rc;
}

int tempi_impl_Cancel(const struct tempi_mpi *next, MPI_Request *request)
{
    if (tempi_pending_any())
        tempi_post_all();
    tempi_record *record = tempi_records_any() && request
                               ? tempi_records_claim(tempi_handle(*request))
                               : NULL;
    if (!record)
        return next->Cancel(request);
    MPI_Request target = *request;
    (void)record->ops->inner(record, &target);
    record->cancelled = true;
    const int rc = target == MPI_REQUEST_NULL ? MPI_SUCCESS : next->Cancel(&target);
    if (!tempi_records_put(record))
        TEMPI_LOG(TEMPI_LOG_ERROR,
                  "out of memory: cannot track a request; its receive may be incomplete");
    return rc;
}

int tempi_impl_Request_free(const struct tempi_mpi *next, MPI_Request *request)
{
    if (tempi_pending_any())
        tempi_post_all();
    tempi_record *record = tempi_records_any() && request
                               ? tempi_records_claim(tempi_handle(*request))
                               : NULL;
    if (!record)
        return next->Request_free(request);
    if (!record->active) {
        const int rc = next->Request_free(request);
        tempi_record_end_restarts(record);
        record->ops->finish(record);
        return rc;
    }
    /* Active: the operation continues, and its data passes through tempi's buffer. */
    tempi_stat_add(TEMPI_STAT_orphans, 1);
    *request = MPI_REQUEST_NULL;
    tempi_deferred_orphan(record);
    return MPI_SUCCESS;
}
