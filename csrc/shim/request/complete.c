/* Wait and Test in all forms.
 *
 *   1. Claim the records of the requests, and put the library's request of each into its place in
 *      the array (claims.h).
 *   2. Call the library, with local statuses if a receive needs them and the program gave none.
 *   3. Unpack what arrived; finish the completed records, put the others back. */
#include "shim/impl.h"
#include "shim/request/claims.h"
#include "shim/request/deferred_sends.h"
#include "shim/request/request.h"
#include "shim/request/waiting.h"

#include <stdlib.h>
#include <string.h>

/* ---- unpacking ------------------------------------------------------------------------------- */

/* The completed operations, collected to unpack all of them in one batch. */
enum { FEW = 64 };
typedef struct arrivals {
    int n, capacity;
    bool several; /* the call completes several requests: errors go into their statuses */
    int failed; /* the call's result for the first error of tempi's own: a send that was not posted,
                   an unpack that failed on a device */
    tempi_op *ops; /* few_ops, or one block of memory for all three arrays */
    tempi_record **records;
    MPI_Status **statuses;
    tempi_op few_ops[FEW];
    tempi_record *few_records[FEW];
    MPI_Status *few_statuses[FEW];
} arrivals;

/* Leaves the arrays uninitialized: clearing them takes longer than a short Waitall. */
static void arrivals_open(arrivals *a, bool several)
{
    a->n = 0;
    a->capacity = FEW;
    a->several = several;
    a->failed = MPI_SUCCESS;
    a->ops = a->few_ops;
    a->records = a->few_records;
    a->statuses = a->few_statuses;
}

static void finish(tempi_record *record, MPI_Status *status, arrivals *a)
{
    if (record->error != MPI_SUCCESS) {
        const int code = a->several ? MPI_ERR_IN_STATUS : record->error;
        if (a->failed == MPI_SUCCESS)
            a->failed = tempi_request_report(record, code); /* one error for each call */
        if (status && a->several)
            status->MPI_ERROR = record->error;
    }
    record->ops->finish(record);
}

static void arrivals_flush(arrivals *a)
{
    if (a->n > 0)
        tempi_request_unpack(a->ops, a->records, a->n);
    for (int i = 0; i < a->n; ++i)
        finish(a->records[i], a->statuses[i], a);
    a->n = 0;
}

static void arrivals_close(arrivals *a)
{
    arrivals_flush(a);
    if (a->ops != a->few_ops)
        free(a->ops);
}

/* Doubles the capacity; false: out of memory. */
static bool arrivals_grow(arrivals *a)
{
    const size_t capacity = 2 * (size_t)a->capacity, n = (size_t)a->n;
    tempi_op *ops = malloc(capacity * (sizeof *ops + sizeof *a->records + sizeof *a->statuses));
    if (!ops)
        return false;
    tempi_record **records = (tempi_record **)(void *)(ops + capacity);
    MPI_Status **statuses = (MPI_Status **)(void *)(records + capacity);
    memcpy(ops, a->ops, n * sizeof *ops);
    memcpy(records, a->records, n * sizeof *records);
    memcpy(statuses, a->statuses, n * sizeof *statuses);
    if (a->ops != a->few_ops)
        free(a->ops);
    a->ops = ops;
    a->records = records;
    a->statuses = statuses;
    a->capacity = (int)capacity;
    return true;
}

/* Makes room, so that a device unpacks all of them in one launch. */
static void arrivals_make_room(arrivals *a)
{
    if (a->n < a->capacity)
        return;
    if (!tempi_memory_mixed || !arrivals_grow(a))
        arrivals_flush(a);
}

/* Open MPI frees a failed request, even a persistent one: the next request may get its handle. One
 * that stands in the place of a persistent one, and is none itself, is freed always. */
static void settle_handle(tempi_record *record, MPI_Request requests[])
{
    MPI_Request inner;
    if (!tempi_record_is_persistent(record))
        return;
    if (record->ended || requests[record->index] != MPI_REQUEST_NULL ||
        (!record->ops->started && record->ops->inner(record, &inner)))
        requests[record->index] = tempi_request_of(record->request);
    else
        tempi_record_lose(record);
}

/* The request ended with `error`; `known`: its status is valid. */
static void complete(tempi_record *record, MPI_Request requests[], MPI_Status *status, int error,
                     bool known, arrivals *a)
{
    settle_handle(record, requests);
    arrivals_make_room(a);
    if (error == MPI_SUCCESS ? record->ops->arrived(record, status, &a->ops[a->n])
                             : known && record->ops->cut(record, error, status, &a->ops[a->n])) {
        a->statuses[a->n] = status;
        a->records[a->n++] = record;
        return;
    }
    finish(record, status, a);
}

/* ---- local statuses -------------------------------------------------------------------------- */

typedef struct statuses {
    MPI_Status *use;
    MPI_Status *owned;
    MPI_Status local[32];
} statuses;

/* False: out of memory, and nothing was done. */
static bool statuses_open(statuses *s, MPI_Status given[], int64_t n, bool needed)
{
    s->owned = NULL;
    s->use = given;
    if (given != MPI_STATUSES_IGNORE || !needed)
        return true;
    s->use = n <= 32 ? s->local : (s->owned = malloc((size_t)n * sizeof *s->owned));
    return s->use != NULL;
}

static void statuses_close(statuses *s)
{
    free(s->owned);
}

static int out_of_memory(MPI_Request requests[], tempi_claims *c)
{
    for (tempi_record *record = c->first, *next; record; record = next) {
        next = record->next_claimed;
        tempi_claim_put_back(record, requests);
    }
    tempi_lib.Comm_call_errhandler(MPI_COMM_SELF, MPI_ERR_NO_MEM);
    return MPI_ERR_NO_MEM;
}

/* ---- one request ----------------------------------------------------------------------------- */

static int end_one(int rc, tempi_record *record, MPI_Request *request, const MPI_Status *status)
{
    settle_handle(record, request);
    if (rc == MPI_SUCCESS || record->receives)
        tempi_request_settle(record, rc, status);
    const int failed = tempi_request_report(record, record->error);
    record->ops->finish(record);
    return failed != MPI_SUCCESS ? failed : rc;
}

int tempi_impl_Wait(const struct tempi_mpi *next, MPI_Request *request, MPI_Status *status)
{
    if (tempi_pending_any())
        tempi_post_all();
    tempi_before_waiting(1, request);
    if (!tempi_records_any() || !request)
        return next->Wait(request, status);
    tempi_claims c;
    tempi_claim_all(request, 1, &c);
    if (!c.first)
        return next->Wait(request, status);
    MPI_Status own, *known = status == MPI_STATUS_IGNORE ? &own : status;
    const int rc = next->Wait(request, c.receives ? known : status);
    return end_one(rc, c.first, request, known);
}

int tempi_impl_Test(const struct tempi_mpi *next, MPI_Request *request, int *flag,
                    MPI_Status *status)
{
    if (tempi_pending_any())
        tempi_progress();
    if (!tempi_records_any() || !request || !flag)
        return next->Test(request, flag, status);
    tempi_claims c;
    tempi_claim_all(request, 1, &c);
    if (!c.first)
        return next->Test(request, flag, status);
    MPI_Status own, *known = status == MPI_STATUS_IGNORE ? &own : status;
    const int rc = next->Test(request, flag, c.receives ? known : status);
    if (rc == MPI_SUCCESS && !*flag) {
        tempi_claim_put_back(c.first, request);
        return rc;
    }
    return end_one(rc, c.first, request, known);
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Settles each record after a Waitall or Testall that returned rc. By MPI-5.0 section 3.7.5 the
 * statuses' errors are set only with MPI_ERR_IN_STATUS; without them a live handle means
 * pending. A bounced operation needs no status: if some operation failed and none is reported,
 * its bytes are copied back; if it failed itself, its buffer is undefined anyway. */
static int end_all(int rc, MPI_Request requests[], MPI_Status given[], tempi_claims *c)
{
    arrivals a;
    arrivals_open(&a, true);
    for (tempi_record *record = c->first, *next; record; record = next) {
        next = record->next_claimed;
        MPI_Status *status = given == MPI_STATUSES_IGNORE ? NULL : &given[record->index];
        const bool reported = rc == MPI_ERR_IN_STATUS && status;
        const int error = reported ? status->MPI_ERROR : rc;
        const bool still = error == MPI_ERR_PENDING ||
                           (rc != MPI_SUCCESS && !reported &&
                            requests[record->index] != MPI_REQUEST_NULL);
        if (still)
            tempi_claim_put_back(record, requests);
        else
            complete(record, requests, status,
                     !reported && record->ops->settles_without_status ? MPI_SUCCESS : error,
                     reported, &a);
    }
    arrivals_close(&a);
    return rc == MPI_SUCCESS ? a.failed : rc;
}

/* The library sets the statuses' errors only if it found one; tempi may add its own. */
static void clear_errors(MPI_Status given[], int64_t n, int rc)
{
    if (rc == MPI_SUCCESS && (tempi_memory_mixed || tempi_more_get()) &&
        given != MPI_STATUSES_IGNORE)
        for (int64_t i = 0; i < n; ++i)
            given[i].MPI_ERROR = MPI_SUCCESS;
}

static bool waits_for_all;

void tempi_complete_learn(const char *version)
{
    const char *mpich = strstr(version, "MPICH Version:");
    waits_for_all = mpich && atoi(mpich + strlen("MPICH Version:")) >= 5;
}

/* Called without statuses, MPICH 5 waits for all requests though some fail; with statuses, as
 * tempi calls it here, it returns with the others pending. MPICH 4.0 does so in both cases. */
static void await_rest(const struct tempi_mpi *next, int n, MPI_Request requests[],
                       MPI_Status own[])
{
    for (int i = 0; i < n; ++i)
        if (own[i].MPI_ERROR == MPI_ERR_PENDING)
            own[i].MPI_ERROR = next->Wait(&requests[i], &own[i]);
}

int tempi_impl_Waitall(const struct tempi_mpi *next, int count, MPI_Request requests[],
                       MPI_Status given[])
{
    if (tempi_pending_any())
        tempi_post_all();
    tempi_before_waiting(count, requests);
    if (!tempi_records_any() || count <= 0 || !requests)
        return next->Waitall(count, requests, given);
    tempi_claims c;
    tempi_claim_all(requests, count, &c);
    if (!c.first)
        return next->Waitall(count, requests, given);
    statuses s;
    if (!statuses_open(&s, given, count, c.receives))
        return out_of_memory(requests, &c);
    int rc = next->Waitall(count, requests, s.use);
    if (rc == MPI_ERR_IN_STATUS && given == MPI_STATUSES_IGNORE && c.receives && waits_for_all)
        await_rest(next, count, requests, s.use);
    clear_errors(s.use, count, rc);
    rc = end_all(rc, requests, s.use, &c);
    statuses_close(&s);
    return rc;
}

int tempi_impl_Testall(const struct tempi_mpi *next, int count, MPI_Request requests[], int *flag,
                       MPI_Status given[])
{
    if (tempi_pending_any())
        tempi_progress();
    if (!tempi_records_any() || count <= 0 || !requests || !flag)
        return next->Testall(count, requests, flag, given);
    tempi_claims c;
    tempi_claim_all(requests, count, &c);
    if (!c.first)
        return next->Testall(count, requests, flag, given);
    statuses s;
    if (!statuses_open(&s, given, count, c.receives))
        return out_of_memory(requests, &c);
    int rc = next->Testall(count, requests, flag, s.use);
    if (rc == MPI_SUCCESS && !*flag)
        for (tempi_record *record = c.first, *following; record; record = following) {
            following = record->next_claimed;
            tempi_claim_put_back(record, requests);
        }
    else {
        clear_errors(s.use, count, rc);
        rc = end_all(rc, requests, s.use, &c);
    }
    statuses_close(&s);
    return rc;
}

/* ---- sends that failed before the library had them ------------------------------------------- */

/* A deferred send that could not be posted. The library has no request of it to wait for, so it
 * must be found before the library is asked for one or some complete requests. */
static bool failed_early(const tempi_record *record)
{
    MPI_Request inner;
    return record->error != MPI_SUCCESS && record->ops->inner(record, &inner) &&
           inner == MPI_REQUEST_NULL;
}

static bool any_failed_early(const tempi_claims *c)
{
    if (!tempi_memory_mixed)
        return false;
    for (const tempi_record *record = c->first; record; record = record->next_claimed)
        if (failed_early(record))
            return true;
    return false;
}

/* A send's status is empty. */
static void empty_status(const struct tempi_mpi *next, MPI_Status *status)
{
    MPI_Request none = MPI_REQUEST_NULL;
    if (status && status != MPI_STATUS_IGNORE)
        (void)next->Wait(&none, status);
}

/* Ends up to `most` of these; the other requests go back. Returns their number. */
static int end_failed(const struct tempi_mpi *next, int most, MPI_Request requests[], int indices[],
                      MPI_Status given[], tempi_claims *c, arrivals *a)
{
    int n = 0;
    for (tempi_record *record = c->first, *following; record; record = following) {
        following = record->next_claimed;
        if (n == most || !failed_early(record)) {
            tempi_claim_put_back(record, requests);
            continue;
        }
        MPI_Status *status = given == MPI_STATUSES_IGNORE ? NULL : &given[n];
        empty_status(next, status);
        requests[record->index] = MPI_REQUEST_NULL;
        indices[n++] = (int)record->index;
        finish(record, status, a);
    }
    return n;
}

static int end_one_failed(const struct tempi_mpi *next, MPI_Request requests[], int *index,
                          MPI_Status *status, tempi_claims *c)
{
    arrivals a;
    arrivals_open(&a, false);
    (void)end_failed(next, 1, requests, index,
                     status == MPI_STATUS_IGNORE ? MPI_STATUSES_IGNORE : status, c, &a);
    return a.failed;
}

/* ---- any ------------------------------------------------------------------------------------- */

/* Requests that complete in progress calls alone: the library must not block in their place. */
static bool must_poll(void)
{
    return tempi_more_get() && tempi_pending_any();
}

/* False: nothing must be polled any more, and no request has completed. */
static bool poll_any(const struct tempi_mpi *next, int count, MPI_Request requests[], int *index,
                     MPI_Status *status, int *rc)
{
    MPI_Request waiting = MPI_REQUEST_NULL;
    int flag = 0;
    for (int64_t waited = 1; !flag && must_poll(); ++waited) {
        *rc = tempi_impl_Testany(next, count, requests, index, &flag, status);
        flag |= *rc != MPI_SUCCESS;
        if (!flag)
            tempi_waiting_idle(&waiting, waited);
    }
    tempi_waiting_end(&waiting);
    return flag;
}

/* Request number `which` completed with rc (none if it is not an index); the others go back. */
static int end_any(int rc, int which, MPI_Request requests[], MPI_Status *status, tempi_claims *c)
{
    arrivals a;
    arrivals_open(&a, false);
    for (tempi_record *record = c->first, *next; record; record = next) {
        next = record->next_claimed;
        if (record->index != which) {
            tempi_claim_put_back(record, requests);
            continue;
        }
        complete(record, requests, status, rc, true, &a);
    }
    arrivals_close(&a);
    return rc == MPI_SUCCESS ? a.failed : rc;
}

int tempi_impl_Waitany(const struct tempi_mpi *next, int count, MPI_Request requests[], int *index,
                       MPI_Status *status)
{
    if (tempi_pending_any())
        tempi_post_all();
    int polled;
    if (index && poll_any(next, count, requests, index, status, &polled))
        return polled;
    if (!tempi_records_any() || count <= 0 || !requests || !index)
        return next->Waitany(count, requests, index, status);
    tempi_claims c;
    tempi_claim_any(requests, count, &c);
    if (!c.first)
        return next->Waitany(count, requests, index, status);
    if (any_failed_early(&c))
        return end_one_failed(next, requests, index, status, &c);
    MPI_Status own, *known = status == MPI_STATUS_IGNORE ? &own : status;
    *index = MPI_UNDEFINED;
    const int rc = next->Waitany(count, requests, index, known);
    return end_any(rc, *index, requests, known, &c);
}

int tempi_impl_Testany(const struct tempi_mpi *next, int count, MPI_Request requests[], int *index,
                       int *flag, MPI_Status *status)
{
    if (tempi_pending_any())
        tempi_progress();
    if (!tempi_records_any() || count <= 0 || !requests || !index || !flag)
        return next->Testany(count, requests, index, flag, status);
    tempi_claims c;
    tempi_claim_any(requests, count, &c);
    if (!c.first)
        return next->Testany(count, requests, index, flag, status);
    if (any_failed_early(&c)) {
        *flag = 1;
        return end_one_failed(next, requests, index, status, &c);
    }
    MPI_Status own, *known = status == MPI_STATUS_IGNORE ? &own : status;
    *index = MPI_UNDEFINED;
    const int rc = next->Testany(count, requests, index, flag, known);
    return end_any(rc, rc == MPI_SUCCESS && !*flag ? MPI_UNDEFINED : *index, requests, known, &c);
}

/* ---- some ------------------------------------------------------------------------------------ */

/* Position of a request's index in `indices`, from `start` on (libraries report them in
 * ascending order); -1: it did not complete. */
static int position_of(int64_t index, const int indices[], int n, int start)
{
    for (int k = 0; k < n; ++k) {
        const int at = start + k < n ? start + k : start + k - n;
        if (indices[at] == index)
            return at;
    }
    return -1;
}

static int end_some(int rc, int outcount, const int indices[], MPI_Request requests[],
                    MPI_Status given[], tempi_claims *c)
{
    const int n = outcount == MPI_UNDEFINED || outcount < 0 ? 0 : outcount;
    const bool reported = rc == MPI_SUCCESS || rc == MPI_ERR_IN_STATUS;
    int start = 0;
    arrivals a;
    arrivals_open(&a, true);
    for (tempi_record *record = c->first, *next; record; record = next) {
        next = record->next_claimed;
        const int at = reported ? position_of(record->index, indices, n, start) : -1;
        if (at < 0) {
            tempi_claim_put_back(record, requests);
            continue;
        }
        start = at + 1;
        MPI_Status *status = given == MPI_STATUSES_IGNORE ? NULL : &given[at];
        const int error = rc == MPI_ERR_IN_STATUS && status ? status->MPI_ERROR : rc;
        complete(record, requests, status, error, status != NULL, &a);
    }
    arrivals_close(&a);
    return rc == MPI_SUCCESS ? a.failed : rc;
}

typedef int (*some_function)(int, MPI_Request[], int *, int[], MPI_Status[]);

static int complete_some(const struct tempi_mpi *next, some_function function, int count,
                         MPI_Request requests[], int *outcount, int indices[], MPI_Status given[])
{
    if (!tempi_records_any() || count <= 0 || !requests || !outcount || !indices)
        return function(count, requests, outcount, indices, given);
    tempi_claims c;
    tempi_claim_any(requests, count, &c);
    if (!c.first)
        return function(count, requests, outcount, indices, given);
    statuses s;
    if (!statuses_open(&s, given, count, c.receives))
        return out_of_memory(requests, &c);
    *outcount = 0;
    if (any_failed_early(&c)) {
        arrivals a;
        arrivals_open(&a, true);
        *outcount = end_failed(next, count, requests, indices, given, &c, &a);
        statuses_close(&s);
        return a.failed;
    }
    int rc = function(count, requests, outcount, indices, s.use);
    if (*outcount > 0)
        clear_errors(s.use, *outcount, rc);
    rc = end_some(rc, *outcount, indices, requests, s.use, &c);
    statuses_close(&s);
    return rc;
}

/* As poll_any. */
static bool poll_some(const struct tempi_mpi *next, int count, MPI_Request requests[],
                      int *outcount, int indices[], MPI_Status given[], int *rc)
{
    MPI_Request waiting = MPI_REQUEST_NULL;
    bool done = false;
    for (int64_t waited = 1; !done && must_poll(); ++waited) {
        *rc = tempi_impl_Testsome(next, count, requests, outcount, indices, given);
        done = *rc != MPI_SUCCESS || *outcount != 0;
        if (!done)
            tempi_waiting_idle(&waiting, waited);
    }
    tempi_waiting_end(&waiting);
    return done;
}

int tempi_impl_Waitsome(const struct tempi_mpi *next, int count, MPI_Request requests[],
                        int *outcount, int indices[], MPI_Status given[])
{
    if (tempi_pending_any())
        tempi_post_all();
    int polled;
    if (outcount && poll_some(next, count, requests, outcount, indices, given, &polled))
        return polled;
    return complete_some(next, next->Waitsome, count, requests, outcount, indices, given);
}

int tempi_impl_Testsome(const struct tempi_mpi *next, int count, MPI_Request requests[],
                        int *outcount, int indices[], MPI_Status given[])
{
    if (tempi_pending_any())
        tempi_progress();
    return complete_some(next, next->Testsome, count, requests, outcount, indices, given);
}
