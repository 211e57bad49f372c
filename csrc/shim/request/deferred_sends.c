#include "shim/request/deferred_sends.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/stats.h"
#include "base/thread.h"
#include "cuda/backend.h"
#include "memory/known.h"
#include "shim/request/quiet.h"
#include "shim/request/request.h"
#include "shim/type/typemap_check.h"

int64_t tempi_pending;

static struct {
    tempi_lock posting; /* held by the one thread that posts, for nonblocking calls only */
    tempi_lock lists;
    tempi_record *head, **tail;
    tempi_record *orphans; /* also read without the lock */
    int64_t unposted;      /* in the list, or removed from it and being posted */
} deferred = {.tail = &deferred.head};

const tempi_more *tempi_more_set;

void tempi_set_more(const tempi_more *more)
{
    __atomic_store_n(&tempi_more_set, more, __ATOMIC_RELEASE);
}

/* An atomic addition takes several nanoseconds (base/thread_cache.h), also if there is one thread.
 */
static void add(int64_t *count, int64_t amount)
{
    if (tempi_threads_are_shared())
        __atomic_fetch_add(count, amount, __ATOMIC_RELAXED);
    else
        *count += amount;
}

void tempi_pending_add(int64_t amount)
{
    add(&tempi_pending, amount);
    tempi_unquiet_add(amount);
}

void tempi_deferred_start(void)
{
    if (tempi_memory_mixed)
        tempi_unquiet_add(1);
}

/* ---- the generalized request of a deferred send ---------------------------------------------- */

static int proxy_query(void *state, MPI_Status *status)
{
    (void)state;
    tempi_lib.Status_set_elements(status, MPI_BYTE, 0);
    tempi_lib.Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    return MPI_SUCCESS;
}

static int proxy_free(void *state)
{
    (void)state;
    return MPI_SUCCESS;
}

static int proxy_cancel(void *state, int complete)
{
    (void)state;
    (void)complete;
    return MPI_SUCCESS;
}

int tempi_proxy_start(MPI_Request *proxy)
{
    return tempi_lib.Grequest_start(proxy_query, proxy_free, proxy_cancel, NULL, proxy);
}

void tempi_proxy_end(MPI_Request *proxy)
{
    tempi_lib.Grequest_complete(*proxy);
    tempi_lib.Request_free(proxy);
}

static void retire(const tempi_record *record)
{
    MPI_Request proxy = tempi_request_of(record->request);
    tempi_proxy_end(&proxy);
}

/* A send whose posting failed has no library request. */
bool tempi_proxy_inner(const tempi_record *record, MPI_Request *out)
{
    const bool posted = __atomic_load_n(&record->posted, __ATOMIC_ACQUIRE);
    if (posted)
        *out = tempi_request_of(record->inner);
    return posted;
}

void tempi_proxy_finish(tempi_record *record)
{
    retire(record);
    tempi_record_release(record);
}

static void check_send(const tempi_record *record)
{
    tempi_check_op(record->typemap, &record->op, "a nonblocking send");
}

const tempi_record_ops tempi_proxy_ops = {.inner = tempi_proxy_inner,
                                          .start = tempi_record_never_starts,
                                          .check = check_send,
                                          .refused = tempi_record_is_refused,
                                          .arrived = tempi_message_arrived,
                                          .cut = tempi_message_was_cut,
                                          .finish = tempi_proxy_finish};

static int largest_tag = 32767; /* minimum that the standard guarantees */

void tempi_deferred_learn_tags(void)
{
    int *value, found = 0;
    if (tempi_lib.Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &found) == MPI_SUCCESS && found)
        largest_tag = *value;
}

bool tempi_deferred_takes(int destination, int tag, MPI_Comm comm)
{
    int between = 0, size = 0;
    if (comm == MPI_COMM_NULL || destination < 0 || tag < 0 || tag > largest_tag ||
        tempi_lib.Comm_test_inter(comm, &between) != MPI_SUCCESS)
        return false;
    const int rc = between ? tempi_lib.Comm_remote_size(comm, &size)
                           : tempi_lib.Comm_size(comm, &size);
    return rc == MPI_SUCCESS && destination < size;
}

/* Once the record is in the table another thread may complete the request. */
static int put_proxy(tempi_record *record, MPI_Request inner, MPI_Request *proxy)
{
    const int rc = tempi_proxy_start(proxy);
    if (rc != MPI_SUCCESS)
        return rc;
    const tempi_record_ops *before = record->ops;
    record->ops = record->receive ? &tempi_loopback_ops : &tempi_proxy_ops;
    record->request = tempi_handle(*proxy);
    record->inner = tempi_handle(inner);
    record->next = NULL;
    if (tempi_records_put(record))
        return MPI_SUCCESS;
    retire(record);
    record->ops = before;
    return MPI_ERR_OTHER;
}

int tempi_deferred_arrived(tempi_record *record, MPI_Request *request)
{
    MPI_Request proxy;
    record->posted = true;
    const int rc = put_proxy(record, *request, &proxy);
    if (rc == MPI_SUCCESS)
        *request = proxy;
    return rc;
}

int tempi_deferred_send(tempi_record *record, MPI_Request *request)
{
    MPI_Request proxy;
    const int rc = put_proxy(record, MPI_REQUEST_NULL, &proxy);
    if (rc != MPI_SUCCESS)
        return rc;
    tempi_stat_add(TEMPI_STAT_deferred, 1);
    /* Counted before another thread can post it: that thread's -1 must not hide other pending
     * ones. */
    tempi_pending_add(1);
    __atomic_fetch_add(&deferred.unposted, 1, __ATOMIC_RELAXED);
    tempi_lock_acquire(&deferred.lists);
    *deferred.tail = record;
    deferred.tail = &record->next;
    tempi_lock_release(&deferred.lists);
    *request = proxy;
    return MPI_SUCCESS;
}

bool tempi_deferred_any(void)
{
    return __atomic_load_n(&deferred.unposted, __ATOMIC_ACQUIRE) != 0;
}

/* ---- posting --------------------------------------------------------------------------------- */

static void post(tempi_record *record)
{
    if (tempi_pack_error(&record->ticket) != TEMPI_OK) {
        record->error = MPI_ERR_OTHER; /* its handler is called when the request completes */
        record->ops->refused(record);
        __atomic_store_n(&record->posted, true, __ATOMIC_RELEASE);
        return;
    }
    if (record->typemap)
        record->ops->check(record);
    const struct tempi_mpi *next = record->mpi;
    const MPI_Comm comm = tempi_comm_of(record->comm);
    MPI_Request inner = MPI_REQUEST_NULL;
    const void *buffer = record->op.packed;
    const MPI_Count n = record->op.n;
    switch ((tempi_send_mode)record->mode) {
    case TEMPI_SEND_STANDARD:
        record->error = tempi_fwd_Isend(next, buffer, n, MPI_PACKED, record->destination,
                                        record->tag, comm, &inner);
        break;
    case TEMPI_SEND_SYNCHRONOUS:
        record->error = tempi_fwd_Issend(next, buffer, n, MPI_PACKED, record->destination,
                                         record->tag, comm, &inner);
        break;
    case TEMPI_SEND_READY:
        record->error = tempi_fwd_Irsend(next, buffer, n, MPI_PACKED, record->destination,
                                         record->tag, comm, &inner);
        break;
    }
    record->error_reported = record->error != MPI_SUCCESS;
    if (record->error_reported)
        record->ops->refused(record);
    record->inner = tempi_handle(inner);
    __atomic_store_n(&record->posted, true, __ATOMIC_RELEASE);
}

/* Removes the oldest deferred send if its pack is done; if `wait`, waits for the pack. */
static tempi_record *next_packed(bool wait)
{
    tempi_lock_acquire(&deferred.lists);
    tempi_record *record = deferred.head;
    tempi_lock_release(&deferred.lists);
    if (!record)
        return NULL;
    if (wait)
        tempi_pack_wait(&record->ticket);
    else if (!tempi_pack_test(&record->ticket))
        return NULL;
    tempi_lock_acquire(&deferred.lists);
    deferred.head = record->next;
    if (!deferred.head)
        deferred.tail = &deferred.head;
    tempi_lock_release(&deferred.lists);
    return record;
}

static void post_deferred(bool wait)
{
    tempi_this_thread.posting = 1;
    for (tempi_record *record; (record = next_packed(wait)) != NULL;) {
        post(record);
        /* Only after posting, not after removal from the list, may the next message go to the
         * library directly. */
        __atomic_fetch_sub(&deferred.unposted, 1, __ATOMIC_RELEASE);
        tempi_pending_add(-1);
    }
    tempi_this_thread.posting = 0;
}

/* ---- orphans --------------------------------------------------------------------------------- */

/* The program may learn of its completion before tempi does, and free the buffer. */
void tempi_deferred_orphan(tempi_record *record)
{
    tempi_memory_unpin(record->pin);
    record->pin = -1;
    tempi_pending_add(1);
    tempi_lock_acquire(&deferred.lists);
    record->next = deferred.orphans;
    __atomic_store_n(&deferred.orphans, record, __ATOMIC_RELAXED);
    tempi_lock_release(&deferred.lists);
}

/* True if the orphan is finished. */
static bool finish_orphan(tempi_record *record)
{
    MPI_Request own = tempi_request_of(record->request), request = own;
    const bool another = record->ops->inner(record, &request);
    MPI_Status status;
    int done = 0;
    if (request == MPI_REQUEST_NULL)
        done = 1;
    else if (tempi_lib.Test(&request, &done, &status) != MPI_SUCCESS)
        done = 1; /* the handler was called; the program has no request to report it to */
    else if (done)
        tempi_request_settle(record, MPI_SUCCESS, &status);
    if (!done)
        return false;
    (void)tempi_request_report(record, record->error);
    if (tempi_record_is_persistent(record)) {
        if (request == MPI_REQUEST_NULL && (!another || record->ops->started))
            tempi_record_lose(record);
        else
            tempi_lib.Request_free(&own);
        tempi_record_end_restarts(record);
    }
    record->ops->finish(record);
    return true;
}

static void drain_orphans(void)
{
    tempi_lock_acquire(&deferred.lists);
    tempi_record *list = deferred.orphans;
    __atomic_store_n(&deferred.orphans, NULL, __ATOMIC_RELAXED);
    tempi_lock_release(&deferred.lists);
    while (list) {
        tempi_record *record = list;
        list = record->next;
        tempi_pending_add(-1);
        if (!finish_orphan(record))
            tempi_deferred_orphan(record);
    }
}

/* ---- entries --------------------------------------------------------------------------------- */

static void progress(bool gathering)
{
    if (tempi_this_thread.posting || !tempi_lock_try(&deferred.posting))
        return;
    if (!gathering)
        tempi_cuda_flush();
    post_deferred(false);
    if (__atomic_load_n(&deferred.orphans, __ATOMIC_RELAXED))
        drain_orphans();
    tempi_lock_release(&deferred.posting);
    const tempi_more *more = tempi_more_get();
    if (more)
        more->progress();
}

void tempi_progress(void)
{
    progress(false);
}

void tempi_progress_gathering(void)
{
    progress(true);
}

void tempi_post_all(void)
{
    if (tempi_this_thread.posting)
        return;
    tempi_lock_acquire(&deferred.posting);
    tempi_cuda_flush(); /* of all devices, before the first wait */
    post_deferred(true);
    if (__atomic_load_n(&deferred.orphans, __ATOMIC_RELAXED))
        drain_orphans();
    tempi_lock_release(&deferred.posting);
    const tempi_more *more = tempi_more_get();
    if (more)
        more->progress();
}

void tempi_before_blocking(void)
{
    tempi_post_all();
    const tempi_more *more = tempi_more_get();
    if (more)
        more->settle();
}

void tempi_deferred_drain(void)
{
    enum { PATIENCE_SECONDS = 10 };
    const double start = tempi_clock();
    do
        tempi_before_blocking();
    while (tempi_pending_any() && tempi_clock() - start < PATIENCE_SECONDS);
    if (tempi_pending_any())
        TEMPI_LOG(TEMPI_LOG_WARN,
                  "%lld requests that were freed while active never completed; their data is lost",
                  (long long)tempi_pending);
}
