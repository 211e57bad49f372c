#include "shim/bounce/bounce.h"
#include "base/log.h"
#include "base/stats.h"
#include "base/thread.h"
#include "base/trace.h"
#include "cuda/device.h"
#include "shim/bounce/bounce_descriptor.h"
#include "shim/request/record_ops.h"
#include "shim/type/types.h"
#include "transfer/records.h"

#include <stdlib.h>
#include <string.h>

bool tempi_bounce_possible(void)
{
    return tempi_this_thread.disabled == 0 && tempi_cuda_probe() != TEMPI_CUDA_ABSENT;
}

/* ---- errors ---------------------------------------------------------------------------------- */

static int raise_code(const tempi_owner *owner, int code)
{
    switch (owner->kind) {
    case TEMPI_OWNED_BY_COMM:
        tempi_lib.Comm_call_errhandler(owner->comm == MPI_COMM_NULL ? MPI_COMM_SELF : owner->comm,
                                       code);
        break;
    case TEMPI_OWNED_BY_FILE: tempi_lib.File_call_errhandler(owner->file, code); break;
    case TEMPI_OWNED_BY_WIN: tempi_lib.Win_call_errhandler(owner->win, code); break;
    }
    return code;
}

static int raise_status(const tempi_owner *owner, int status, const char *during)
{
    tempi_stat_add(TEMPI_STAT_bounce_errors, 1);
    TEMPI_WARN_ONCE("%s a buffer on a device: %s", during, tempi_status_string(status));
    return raise_code(owner, status == TEMPI_ERR_MEMORY ? MPI_ERR_NO_MEM : MPI_ERR_OTHER);
}

void tempi_bounce_free(tempi_bounce *bounce)
{
    if (!bounce || __atomic_sub_fetch(&bounce->holders, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    for (int i = 0; i < bounce->n; ++i)
        tempi_bounce_buffer_close(&bounce->buffers[i].host);
    free(bounce->copied);
    free(bounce);
}

/* ---- copying --------------------------------------------------------------------------------- */

/* At its start a partitioned message copies nothing yet. */
static int start_partitions(tempi_bounce *bounce)
{
    memset(bounce->copied, 0, (size_t)bounce->partitions);
    tempi_stat_add(TEMPI_STAT_bounced, 1);
    return TEMPI_OK;
}

static int await_program(const tempi_bounce_descriptor *h)
{
    int status = TEMPI_OK;
    for (uint64_t left = h->waits; left != 0 && status == TEMPI_OK; left &= left - 1)
        status = tempi_cuda_await_program(__builtin_ctzll(left), TEMPI_PACK);
    return status;
}

static int move_partition(const tempi_bounce_descriptor *h, int partitions, int direction,
                          int partition)
{
    int status = await_program(h);
    const int64_t n = h->host.bytes / partitions;
    if (status == TEMPI_OK && n > 0) {
        status = tempi_bounce_buffer_move(&h->host, direction, partition * n, n);
        tempi_stat_add(TEMPI_STAT_bounced_bytes, n);
    }
    return status;
}

/* Copies each partition back only once: the program may have used it since. */
static int bring_partition(tempi_bounce *bounce, int partition)
{
    int status = TEMPI_OK;
    tempi_lock_acquire(&bounce->lock);
    if (!bounce->copied[partition]) {
        status = move_partition(&bounce->buffers[0], bounce->partitions, TEMPI_UNPACK, partition);
        bounce->copied[partition] = true;
    }
    tempi_lock_release(&bounce->lock);
    return status;
}

static int bring_partitions(tempi_bounce *bounce)
{
    int status = TEMPI_OK;
    for (int i = 0; i < bounce->partitions && status == TEMPI_OK; ++i)
        status = bring_partition(bounce, i);
    return status;
}

static int fill(tempi_bounce *bounce)
{
    int status = TEMPI_OK;
    if (bounce->partitions)
        return start_partitions(bounce);
    for (int i = 0; i < bounce->n && status == TEMPI_OK; ++i) {
        const tempi_bounce_descriptor *h = &bounce->buffers[i];
        status = await_program(h);
        if (status != TEMPI_OK || h->host.bytes == 0 || !(h->does & (TEMPI_READS | TEMPI_KEEPS)))
            continue;
        status = tempi_bounce_buffer_fill(&h->host);
        tempi_stat_add(TEMPI_STAT_bounced_bytes, h->host.bytes);
    }
    tempi_stat_add(TEMPI_STAT_bounced, 1);
    return status;
}

int tempi_bounce_fill(tempi_bounce *bounce)
{
    const double start = tempi_trace_begin();
    const int status = fill(bounce);
    tempi_trace_end(start, "bounce", "in", 0);
    return status == TEMPI_OK ? MPI_SUCCESS : raise_status(&bounce->owner, status, "copying");
}

int tempi_bounce_drain(tempi_bounce *bounce)
{
    const double start = tempi_trace_begin();
    int status = TEMPI_OK;
    if (bounce->partitions && (bounce->buffers[0].does & TEMPI_WRITES))
        status = bring_partitions(bounce);
    for (int i = 0; i < bounce->n && status == TEMPI_OK && !bounce->partitions; ++i) {
        const tempi_bounce_descriptor *h = &bounce->buffers[i];
        if (h->host.bytes == 0 || !(h->does & TEMPI_WRITES))
            continue;
        status = tempi_bounce_buffer_drain(&h->host);
        tempi_stat_add(TEMPI_STAT_bounced_bytes, h->host.bytes);
    }
    tempi_trace_end(start, "bounce", "out", 0);
    return status == TEMPI_OK ? MPI_SUCCESS : raise_status(&bounce->owner, status, "copying");
}

int tempi_bounce_drain_once(tempi_bounce *bounce)
{
    int rc = MPI_SUCCESS;
    tempi_lock_acquire(&bounce->lock);
    if (!bounce->back)
        rc = tempi_bounce_drain(bounce);
    bounce->back = true;
    tempi_lock_release(&bounce->lock);
    return rc;
}

/* ---- one call -------------------------------------------------------------------------------- */

static int describe_all(tempi_owner owner, tempi_bounce_argument *buffers, int n,
                        tempi_bounce **out)
{
    for (int i = 0; i < n; ++i) {
        tempi_bounce_descriptor h;
        bool needed;
        const int status = tempi_bounce_describe(&owner, &buffers[i], &h, &needed);
        if (status != TEMPI_OK)
            return status;
        if (!needed)
            continue;
        if (!*out && !(*out = calloc(1, sizeof **out))) {
            tempi_bounce_buffer_close(&h.host);
            return TEMPI_ERR_MEMORY;
        }
        (*out)->holders = 1;
        (*out)->owner = owner;
        (*out)->buffers[(*out)->n++] = h;
    }
    return TEMPI_OK;
}

int tempi_bounce_open(tempi_owner owner, tempi_bounce_argument *buffers, int n,
                      tempi_bounce_when when, tempi_bounce **out)
{
    tempi_bounce *bounce = NULL;
    *out = NULL;
    for (int i = 0; i < n; ++i)
        buffers[i].given = (void *)(uintptr_t)buffers[i].address;
    const int status = describe_all(owner, buffers, n, &bounce);
    int rc = status == TEMPI_OK ? MPI_SUCCESS : raise_status(&owner, status, "host memory for");
    if (rc == MPI_SUCCESS && bounce && when == TEMPI_BOUNCE_NOW)
        rc = tempi_bounce_fill(bounce);
    if (rc == MPI_SUCCESS)
        *out = bounce;
    else
        tempi_bounce_free(bounce);
    return rc;
}

bool tempi_bounce_at_root(MPI_Comm comm, int root)
{
    return tempi_is_root(comm, root);
}

bool tempi_bounce_at_leaf(MPI_Comm comm, int root)
{
    return comm != MPI_COMM_NULL && root != MPI_ROOT && root != MPI_PROC_NULL;
}

int tempi_bounce_broadcasts(MPI_Comm comm, int root)
{
    if (tempi_bounce_at_root(comm, root))
        return TEMPI_READS;
    return tempi_bounce_at_leaf(comm, root) ? TEMPI_WRITES : 0;
}

int tempi_bounce_close(tempi_bounce *bounce, int rc)
{
    if (bounce && rc == MPI_SUCCESS)
        rc = tempi_bounce_drain_once(bounce);
    tempi_bounce_free(bounce);
    return rc;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Copies the arrived bytes to the device, unless the request was cancelled or settled already. */
static void settle(tempi_record *record, const MPI_Status *status,
                   int (*drain)(tempi_bounce *bounce))
{
    if (record->settled)
        return;
    record->settled = true;
    int cancelled = 0;
    if (record->cancelled)
        tempi_lib.Test_cancelled(status, &cancelled);
    if (cancelled)
        return;
    tempi_bounce_unlist(record->bounce);
    record->error = drain(record->bounce);
}

static bool arrived_once(tempi_record *record, const MPI_Status *status, tempi_op *out)
{
    (void)out;
    settle(record, status, tempi_bounce_drain_once);
    return false;
}

static bool arrived(tempi_record *record, const MPI_Status *status, tempi_op *out)
{
    (void)out;
    settle(record, status, tempi_bounce_drain);
    return false;
}

static bool start(tempi_record *record, tempi_op *out, int *rc)
{
    (void)out;
    *rc = tempi_bounce_fill(record->bounce);
    return false;
}

/* The library delivers either as much as fits into the bounce buffer or nothing, and does not
 * report which. */
const tempi_record_ops tempi_bounce_ops = {.inner = tempi_record_has_no_inner,
                                           .start = tempi_record_never_starts,
                                           .check = tempi_record_needs_no_check,
                                           .refused = tempi_record_is_refused,
                                           .arrived = arrived_once,
                                           .cut = tempi_record_was_not_cut,
                                           .finish = tempi_record_release,
                                           .settles_without_status = true};

const tempi_record_ops tempi_bounce_persistent_ops = {.inner = tempi_record_has_no_inner,
                                                      .start = start,
                                                      .check = tempi_record_needs_no_check,
                                                      .refused = tempi_record_is_refused,
                                                      .arrived = arrived,
                                                      .cut = tempi_record_was_not_cut,
                                                      .finish = tempi_record_rest,
                                                      .once = &tempi_bounce_ops,
                                                      .settles_without_status = true};

static tempi_record *record_of(tempi_bounce *bounce, const tempi_record_ops *ops,
                               MPI_Request request)
{
    tempi_record *record = tempi_record_new();
    if (!record)
        return NULL;
    record->ops = ops;
    record->active = !tempi_record_is_persistent(record);
    record->bounce = bounce;
    record->request = tempi_handle(request);
    record->comm = tempi_handle(MPI_COMM_SELF);
    if (tempi_records_put(record))
        return record;
    record->bounce = NULL;
    tempi_record_free(record);
    return NULL;
}

/* Asks the library whether the request is complete: 1, 0, or 2 if it failed. */
static int completed(MPI_Request request)
{
    MPI_Status status;
    int done = 0;
    status.MPI_ERROR = MPI_SUCCESS;
    if (tempi_lib.Request_get_status(request, &done, &status) != MPI_SUCCESS)
        return 2;
    return done && status.MPI_ERROR != MPI_SUCCESS ? 2 : done;
}

int tempi_bounce_attach(tempi_bounce *bounce, int rc, MPI_Request *request)
{
    if (!bounce || rc != MPI_SUCCESS) {
        tempi_bounce_free(bounce);
        return rc;
    }
    /* Complete requests share handles; only an incomplete one has a handle of its own. */
    int done = completed(*request);
    if (!done && record_of(bounce, &tempi_bounce_ops, *request))
        return MPI_SUCCESS;
    if (!done)
        TEMPI_WARN_ONCE("out of memory: cannot track a request; waiting for the operation instead");
    while (!done)
        done = completed(*request);
    tempi_bounce_unlist(bounce);
    return done == 1 ? tempi_bounce_close(bounce, MPI_SUCCESS)
                     : (tempi_bounce_free(bounce), MPI_SUCCESS);
}

/* The window's synchronisation ends the operation too, perhaps long before the request is waited
 * for. */
int tempi_bounce_attach_target(tempi_bounce *bounce, int rc, int target, MPI_Request *request)
{
    if (bounce && rc == MPI_SUCCESS)
        tempi_bounce_list(bounce, target);
    return tempi_bounce_attach(bounce, rc, request);
}

int tempi_bounce_attach_persistent(tempi_bounce *bounce, int rc, MPI_Request *request)
{
    if (!bounce || rc != MPI_SUCCESS) {
        tempi_bounce_free(bounce);
        return rc;
    }
    if (record_of(bounce, &tempi_bounce_persistent_ops, *request))
        return MPI_SUCCESS;
    tempi_lib.Request_free(request);
    const tempi_owner owner = bounce->owner;
    tempi_bounce_free(bounce);
    return raise_status(&owner, TEMPI_ERR_MEMORY, "a request for");
}

int tempi_bounce_attach_partitions(tempi_bounce *bounce, int rc, int partitions,
                                   MPI_Request *request)
{
    if (bounce) {
        bounce->partitions = partitions;
        bounce->copied = calloc((size_t)partitions, sizeof *bounce->copied);
    }
    if (!bounce || rc != MPI_SUCCESS || bounce->copied)
        return tempi_bounce_attach_persistent(bounce, rc, request);
    tempi_lib.Request_free(request);
    rc = raise_status(&bounce->owner, TEMPI_ERR_MEMORY, "a request for");
    tempi_bounce_free(bounce);
    return rc;
}

/* Does not claim the record: several threads may work on partitions of one request. */
static tempi_bounce *partitioned(MPI_Request request)
{
    tempi_bounce *bounce = NULL;
    tempi_lock_acquire(&tempi_records.lock);
    const tempi_record_slot *slot = tempi_records_find(tempi_handle(request));
    if (slot)
        bounce = slot->record->bounce;
    tempi_lock_release(&tempi_records.lock);
    return bounce && bounce->partitions ? bounce : NULL;
}

int tempi_bounce_ready(MPI_Request request, int first, int last)
{
    tempi_bounce *bounce = partitioned(request);
    int status = TEMPI_OK;
    if (!bounce || first < 0 || last >= bounce->partitions ||
        !(bounce->buffers[0].does & TEMPI_READS))
        return MPI_SUCCESS;
    for (int i = first; i <= last && status == TEMPI_OK; ++i)
        status = move_partition(&bounce->buffers[0], bounce->partitions, TEMPI_PACK, i);
    return status == TEMPI_OK ? MPI_SUCCESS : raise_status(&bounce->owner, status, "copying");
}

int tempi_bounce_arrived(MPI_Request request, int partition)
{
    tempi_bounce *bounce = partitioned(request);
    if (!bounce || partition < 0 || partition >= bounce->partitions ||
        !(bounce->buffers[0].does & TEMPI_WRITES))
        return MPI_SUCCESS;
    const int status = bring_partition(bounce, partition);
    return status == TEMPI_OK ? MPI_SUCCESS : raise_status(&bounce->owner, status, "copying");
}

/* ---- unsupported calls ----------------------------------------------------------------------- */

bool tempi_bounce_refuses(const void *base, MPI_Count size)
{
    return size > 0 && tempi_memory_of(base) == TEMPI_MEMORY_DEVICE;
}

/* Whether the library returns that string for the code. MPICH 4.0 returns another one for a code
 * of a class that is not the program's own. */
static bool has_string(int code, const char *string)
{
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    return tempi_lib.Error_string(code, text, &length) == MPI_SUCCESS && strcmp(text, string) == 0;
}

/* The error's class is unspecific; its string explains it. */
static int refusal(void)
{
    static const char string[] =
        "tempi: this MPI library is not CUDA-aware, and device memory that it would "
        "keep using cannot be replaced by a bounce buffer";
    static int code = MPI_SUCCESS;
    static tempi_lock lock;
    tempi_lock_acquire(&lock);
    if (code == MPI_SUCCESS &&
        (tempi_lib.Add_error_code(MPI_ERR_BUFFER, &code) != MPI_SUCCESS ||
         tempi_lib.Add_error_string(code, string) != MPI_SUCCESS || !has_string(code, string)))
        code = MPI_ERR_BUFFER;
    const int found = code;
    tempi_lock_release(&lock);
    return found;
}

int tempi_bounce_refuse(tempi_owner owner, const char *call)
{
    TEMPI_LOG(
        TEMPI_LOG_ERROR,
        "%s: the buffer is device memory, but this MPI library is not CUDA-aware; use host memory",
        call);
    tempi_stat_add(TEMPI_STAT_bounce_errors, 1);
    return raise_code(&owner, refusal());
}
