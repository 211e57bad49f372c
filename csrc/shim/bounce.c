#include "shim/bounce.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/stats.h"
#include "base/thread.h"
#include "base/trace.h"
#include "cuda/device.h"
#include "shim/types.h"
#include "transfer/records.h"
#include "transfer/shadow.h"

#include <stdlib.h>
#include <string.h>

enum { BUFFERS = 3 }; /* Compare_and_swap has as many */

/* One buffer of a call under way. */
typedef struct held {
    int does;
    bool waits; /* managed memory: the library works in it, once the program's stream is through with it */
    int device;
    tempi_shadow shadow; /* empty for managed memory */
} held;

struct tempi_bounce {
    tempi_owner owner;
    int n;
    held buffers[BUFFERS];
    int target;         /* of a lingering one-sided operation */
    int partitions;     /* of a partitioned message; else 0 */
    bool *moved;        /* of these: which came back since the start */
    tempi_lock lock;    /* guards `moved`, and the moving of arrived partitions */
    tempi_bounce *next; /* in the list of those, and in a claim */
};

bool tempi_bounce_possible(void)
{
    return tempi_this_thread.disabled == 0 && tempi_cuda_look() != TEMPI_CUDA_ABSENT;
}

/* ---- errors -------------------------------------------------------------------------------------------- */

static int raise_code(const tempi_owner *owner, int code)
{
    switch (owner->kind) {
    case TEMPI_OWNED_BY_COMM:
        tempi_lib.Comm_call_errhandler(owner->comm == MPI_COMM_NULL ? MPI_COMM_SELF : owner->comm, code);
        break;
    case TEMPI_OWNED_BY_FILE: tempi_lib.File_call_errhandler(owner->file, code); break;
    case TEMPI_OWNED_BY_WIN: tempi_lib.Win_call_errhandler(owner->win, code); break;
    }
    return code;
}

static int raise_status(const tempi_owner *owner, int status)
{
    tempi_stat_add(TEMPI_STAT_bounce_errors, 1);
    return raise_code(owner, status == TEMPI_ERR_MEMORY ? MPI_ERR_NO_MEM : MPI_ERR_OTHER);
}

/* ---- reading a buffer's description --------------------------------------------------------------------- */

static int64_t number(tempi_numbers numbers, int64_t i)
{
    return numbers.wide ? ((const int64_t *)numbers.of)[i] : ((const int *)numbers.of)[i];
}

/* The entries of a buffer, in one form: `n` of them, or one of `count` elements. */
typedef struct entries {
    int64_t n;
    int64_t count; /* of the only one; with n > 1, and else for arrays, the buffer's own arrays tell */
    bool arrays;
} entries;

static bool sum_of(const tempi_bounce_buffer *buffer, int64_t n, int64_t *sum)
{
    *sum = 0;
    for (int64_t i = 0; i < n; ++i)
        if (number(buffer->counts, i) < 0 || __builtin_add_overflow(*sum, number(buffer->counts, i), sum))
            return false;
    return true;
}

/* False: an argument is for the library to judge. */
static bool entries_read(const tempi_owner *owner, const tempi_bounce_buffer *buffer, entries *out)
{
    int n = 1, rank = 0;
    if (buffer->times != TEMPI_ONCE &&
        (owner->comm == MPI_COMM_NULL ||
         tempi_narrow_entries(owner->comm, (enum tempi_narrow_length)buffer->times, &n) != MPI_SUCCESS))
        return false;
    *out = (entries){.n = n, .arrays = buffer->counts.of && buffer->displacements.of};
    if (out->arrays)
        return true;
    out->n = 1;
    if (!buffer->counts.of)
        return !__builtin_mul_overflow(buffer->count, n, &out->count);
    if (!buffer->own)
        return sum_of(buffer, n, &out->count);
    if (tempi_lib.Comm_rank(owner->comm, &rank) != MPI_SUCCESS)
        return false;
    out->count = number(buffer->counts, rank);
    return true;
}

/* A duplicate that was made behind tempi's back may be committed: with an address that the library cannot
 * read it is not left to that to find out. */
static const tempi_type *type_at(const tempi_bounce_buffer *buffer, int64_t i)
{
    const MPI_Datatype handle = buffer->types ? buffer->types[i] : buffer->type;
    const tempi_type *type = tempi_type_any(handle);
    if (!type && tempi_memory_of(buffer->address) == TEMPI_MEMORY_DEVICE)
        type = tempi_type_adopt(handle);
    return type;
}

typedef enum seen {
    SEEN_NOTHING, /* no bytes there */
    SEEN_PIECE,
    SEEN_WRONG /* the library's to judge */
} seen;

static seen entry_read(const tempi_bounce_buffer *buffer, const entries *all, int64_t i, tempi_shadow_piece *out)
{
    const int64_t count = all->arrays ? number(buffer->counts, i) : all->count;
    if (count <= 0)
        return count < 0 ? SEEN_WRONG : SEEN_NOTHING;
    const tempi_type *type = type_at(buffer, i);
    if (!type)
        return SEEN_WRONG;
    if (type->size == 0)
        return SEEN_NOTHING;
    int64_t at = all->arrays ? number(buffer->displacements, i) : 0;
    if (!buffer->in_bytes && __builtin_mul_overflow(at, type->layout->extent, &at))
        return SEEN_WRONG;
    /* Nothing lies in the first page: an address there is NULL, passed by mistake. */
    if ((uintptr_t)buffer->address + (uintptr_t)at + (uintptr_t)type->layout->true_lb < 4096)
        return SEEN_WRONG;
    *out = (tempi_shadow_piece){type->layout, count, at, -1};
    return SEEN_PIECE;
}

static void describe(const tempi_bounce_buffer *buffer, const tempi_shadow_piece *piece, tempi_memory *out)
{
    tempi_memory_describe((const char *)buffer->address + piece->displacement + piece->layout->true_lb, out);
}

/* What a buffer needs. One memory answers for all of it, but with MPI_BOTTOM, whose types may be of several. */
typedef struct need {
    bool shadow, waits, each;
    int device;
} need;

static void need_add(need *out, const tempi_memory *memory)
{
    if (memory->kind != TEMPI_MEMORY_DEVICE && memory->kind != TEMPI_MEMORY_MANAGED)
        return;
    out->shadow |= memory->kind == TEMPI_MEMORY_DEVICE;
    out->waits |= memory->kind == TEMPI_MEMORY_MANAGED;
    out->device = memory->device;
}

static void need_find(const tempi_bounce_buffer *buffer, const entries *all, need *out)
{
    *out = (need){.each = buffer->address == MPI_BOTTOM, .device = -1};
    for (int64_t i = 0; i < all->n; ++i) {
        tempi_shadow_piece piece;
        tempi_memory memory;
        const seen s = entry_read(buffer, all, i, &piece);
        if (s == SEEN_NOTHING)
            continue;
        if (s == SEEN_WRONG) {
            *out = (need){.device = -1};
            return;
        }
        describe(buffer, &piece, &memory);
        need_add(out, &memory);
        if (!out->each)
            return;
    }
}

/* ---- taking one ----------------------------------------------------------------------------------------- */

static int shadow_fill_in(const tempi_bounce_buffer *buffer, const entries *all, const need *what, held *h,
                          bool *wrong)
{
    tempi_shadow_open(&h->shadow, buffer->address);
    int status = TEMPI_OK;
    for (int64_t i = 0; i < all->n && status == TEMPI_OK && !*wrong; ++i) {
        tempi_shadow_piece piece;
        tempi_memory memory = {.kind = TEMPI_MEMORY_DEVICE, .device = what->device};
        const seen s = entry_read(buffer, all, i, &piece);
        *wrong = s == SEEN_WRONG;
        if (s != SEEN_PIECE)
            continue;
        if (what->each)
            describe(buffer, &piece, &memory);
        const int32_t device = memory.kind == TEMPI_MEMORY_DEVICE ? memory.device : -1;
        status = tempi_shadow_add(&h->shadow, piece.layout, piece.count, piece.displacement, device);
    }
    return status == TEMPI_OK && !*wrong ? tempi_shadow_take(&h->shadow) : status;
}

/* Whether anything is to be done with the buffer: *h says what. A tempi_status. */
static int hold(const tempi_owner *owner, tempi_bounce_buffer *buffer, held *h, bool *held_it)
{
    entries all;
    need what;
    bool wrong = false;
    *held_it = false;
    if (buffer->does == 0 || !entries_read(owner, buffer, &all))
        return TEMPI_OK;
    need_find(buffer, &all, &what);
    if (!what.shadow && !what.waits)
        return TEMPI_OK;
    *h = (held){.does = buffer->does, .waits = what.waits, .device = what.device};
    int status = TEMPI_OK;
    if (what.shadow)
        status = shadow_fill_in(buffer, &all, &what, h, &wrong);
    if (status == TEMPI_OK && !wrong) {
        if (what.shadow)
            buffer->given = h->shadow.given;
        *held_it = true;
        return TEMPI_OK;
    }
    tempi_shadow_close(&h->shadow);
    return status;
}

void tempi_bounce_free(tempi_bounce *bounce)
{
    if (!bounce)
        return;
    for (int i = 0; i < bounce->n; ++i)
        tempi_shadow_close(&bounce->buffers[i].shadow);
    free(bounce->moved);
    free(bounce);
}

/* ---- moving --------------------------------------------------------------------------------------------- */

/* The start of a partitioned message moves nothing yet. */
static int start_partitions(tempi_bounce *bounce)
{
    memset(bounce->moved, 0, (size_t)bounce->partitions);
    tempi_stat_add(TEMPI_STAT_bounced, 1);
    return TEMPI_OK;
}

static int move_partition(const held *h, int partitions, int direction, int partition)
{
    int status = h->waits ? tempi_cuda_await_program(h->device) : TEMPI_OK;
    const int64_t n = h->shadow.bytes / partitions;
    if (status == TEMPI_OK && n > 0) {
        status = tempi_shadow_move(&h->shadow, direction, partition * n, n);
        tempi_stat_add(TEMPI_STAT_bounced_bytes, n);
    }
    return status;
}

/* Each comes back once: the program may be using it since. */
static int bring_partition(tempi_bounce *bounce, int partition)
{
    int status = TEMPI_OK;
    tempi_lock_acquire(&bounce->lock);
    if (!bounce->moved[partition]) {
        status = move_partition(&bounce->buffers[0], bounce->partitions, TEMPI_UNPACK, partition);
        bounce->moved[partition] = true;
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
        const held *h = &bounce->buffers[i];
        if (h->waits)
            status = tempi_cuda_await_program(h->device);
        if (status != TEMPI_OK || h->shadow.bytes == 0 || !(h->does & (TEMPI_READS | TEMPI_KEEPS)))
            continue;
        status = tempi_shadow_fill(&h->shadow);
        tempi_stat_add(TEMPI_STAT_bounced_bytes, h->shadow.bytes);
    }
    tempi_stat_add(TEMPI_STAT_bounced, 1);
    return status;
}

int tempi_bounce_fill(tempi_bounce *bounce)
{
    const double start = tempi_trace_begin();
    const int status = fill(bounce);
    tempi_trace_end(start, "bounce", "in", 0);
    return status == TEMPI_OK ? MPI_SUCCESS : raise_status(&bounce->owner, status);
}

static int drain(tempi_bounce *bounce)
{
    const double start = tempi_trace_begin();
    int status = TEMPI_OK;
    if (bounce->partitions && (bounce->buffers[0].does & TEMPI_WRITES))
        status = bring_partitions(bounce);
    for (int i = 0; i < bounce->n && status == TEMPI_OK && !bounce->partitions; ++i) {
        const held *h = &bounce->buffers[i];
        if (h->shadow.bytes == 0 || !(h->does & TEMPI_WRITES))
            continue;
        status = tempi_shadow_drain(&h->shadow);
        tempi_stat_add(TEMPI_STAT_bounced_bytes, h->shadow.bytes);
    }
    tempi_trace_end(start, "bounce", "out", 0);
    return status == TEMPI_OK ? MPI_SUCCESS : raise_status(&bounce->owner, status);
}

/* ---- one call ------------------------------------------------------------------------------------------- */

static int hold_all(tempi_owner owner, tempi_bounce_buffer *buffers, int n, tempi_bounce **out)
{
    for (int i = 0; i < n; ++i) {
        held h;
        bool held_it;
        const int status = hold(&owner, &buffers[i], &h, &held_it);
        if (status != TEMPI_OK)
            return status;
        if (!held_it)
            continue;
        if (!*out && !(*out = calloc(1, sizeof **out))) {
            tempi_shadow_close(&h.shadow);
            return TEMPI_ERR_MEMORY;
        }
        (*out)->owner = owner;
        (*out)->buffers[(*out)->n++] = h;
    }
    return TEMPI_OK;
}

int tempi_bounce_open(tempi_owner owner, tempi_bounce_buffer *buffers, int n, tempi_bounce_when when,
                      tempi_bounce **out)
{
    tempi_bounce *bounce = NULL;
    *out = NULL;
    for (int i = 0; i < n; ++i)
        buffers[i].given = (void *)(uintptr_t)buffers[i].address;
    const int status = hold_all(owner, buffers, n, &bounce);
    int rc = status == TEMPI_OK ? MPI_SUCCESS : raise_status(&owner, status);
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
        rc = drain(bounce);
    tempi_bounce_free(bounce);
    return rc;
}

/* ---- requests ------------------------------------------------------------------------------------------- */

void tempi_bounce_settle(tempi_record *record, const MPI_Status *status)
{
    if (record->settled)
        return;
    record->settled = true;
    int cancelled = 0;
    if (record->cancelled)
        tempi_lib.Test_cancelled(status, &cancelled);
    if (!cancelled)
        record->error = drain(record->bounce);
}

static tempi_record *record_of(tempi_bounce *bounce, tempi_request_role role, MPI_Request request)
{
    tempi_record *record = tempi_record_new();
    if (!record)
        return NULL;
    record->role = role;
    record->active = role == TEMPI_REQUEST_ATTACHED;
    record->bounce = bounce;
    record->request = tempi_handle(request);
    record->comm = tempi_handle(MPI_COMM_SELF);
    if (tempi_records_put(record))
        return record;
    record->bounce = NULL;
    tempi_record_free(record);
    return NULL;
}

/* The request is complete, as told by the library: 1, 0, or 2 if it failed. */
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
    if (!done && record_of(bounce, TEMPI_REQUEST_ATTACHED, *request))
        return MPI_SUCCESS;
    if (!done)
        TEMPI_WARN_ONCE("out of memory for a request record: waiting for the operation instead");
    while (!done)
        done = completed(*request);
    return done == 1 ? tempi_bounce_close(bounce, MPI_SUCCESS) : (tempi_bounce_free(bounce), MPI_SUCCESS);
}

int tempi_bounce_keep(tempi_bounce *bounce, int rc, MPI_Request *request)
{
    if (!bounce || rc != MPI_SUCCESS) {
        tempi_bounce_free(bounce);
        return rc;
    }
    if (record_of(bounce, TEMPI_REQUEST_PERSISTENT, *request))
        return MPI_SUCCESS;
    tempi_lib.Request_free(request);
    const tempi_owner owner = bounce->owner;
    tempi_bounce_free(bounce);
    return raise_status(&owner, TEMPI_ERR_MEMORY);
}

int tempi_bounce_keep_partitions(tempi_bounce *bounce, int rc, int partitions, MPI_Request *request)
{
    if (bounce) {
        bounce->partitions = partitions;
        bounce->moved = calloc((size_t)partitions, sizeof *bounce->moved);
    }
    if (!bounce || rc != MPI_SUCCESS || bounce->moved)
        return tempi_bounce_keep(bounce, rc, request);
    tempi_lib.Request_free(request);
    rc = raise_status(&bounce->owner, TEMPI_ERR_MEMORY);
    tempi_bounce_free(bounce);
    return rc;
}

/* Not claimed: several threads may be at partitions of one request. */
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
    if (!bounce || first < 0 || last >= bounce->partitions || !(bounce->buffers[0].does & TEMPI_READS))
        return MPI_SUCCESS;
    for (int i = first; i <= last && status == TEMPI_OK; ++i)
        status = move_partition(&bounce->buffers[0], bounce->partitions, TEMPI_PACK, i);
    return status == TEMPI_OK ? MPI_SUCCESS : raise_status(&bounce->owner, status);
}

int tempi_bounce_arrived(MPI_Request request, int partition)
{
    tempi_bounce *bounce = partitioned(request);
    if (!bounce || partition < 0 || partition >= bounce->partitions || !(bounce->buffers[0].does & TEMPI_WRITES))
        return MPI_SUCCESS;
    const int status = bring_partition(bounce, partition);
    return status == TEMPI_OK ? MPI_SUCCESS : raise_status(&bounce->owner, status);
}

/* ---- what lingers --------------------------------------------------------------------------------------- */

int64_t tempi_bounce_lingering;

static struct {
    tempi_lock lock;
    tempi_bounce *first;
} lingering;

static void lingering_add(tempi_bounce *list)
{
    tempi_lock_acquire(&lingering.lock);
    tempi_bounce **end = &lingering.first;
    while (*end)
        end = &(*end)->next;
    *end = list;
    for (; list; list = list->next)
        __atomic_fetch_add(&tempi_bounce_lingering, 1, __ATOMIC_RELAXED);
    tempi_lock_release(&lingering.lock);
}

typedef bool (*chosen)(const tempi_bounce *bounce, const tempi_bounce *like);

static tempi_bounce *lingering_take(chosen is, const tempi_bounce *like)
{
    tempi_bounce *taken = NULL, **end = &taken;
    tempi_lock_acquire(&lingering.lock);
    for (tempi_bounce **at = &lingering.first; *at;) {
        tempi_bounce *bounce = *at;
        if (!is(bounce, like)) {
            at = &bounce->next;
            continue;
        }
        *at = bounce->next;
        bounce->next = NULL;
        *end = bounce;
        end = &bounce->next;
        __atomic_fetch_sub(&tempi_bounce_lingering, 1, __ATOMIC_RELAXED);
    }
    tempi_lock_release(&lingering.lock);
    return taken;
}

static void free_all(tempi_bounce *list)
{
    while (list) {
        tempi_bounce *bounce = list;
        list = list->next;
        tempi_bounce_free(bounce);
    }
}

/* Kept for the window's next synchronisation, or for the file's second half. */
static int stay(tempi_bounce *bounce, int rc)
{
    if (bounce && rc == MPI_SUCCESS)
        lingering_add(bounce);
    else
        tempi_bounce_free(bounce);
    return rc;
}

int tempi_bounce_linger(tempi_bounce *bounce, int rc, int target)
{
    if (bounce)
        bounce->target = target;
    return stay(bounce, rc);
}

int tempi_bounce_begin(tempi_bounce *bounce, int rc)
{
    return stay(bounce, rc);
}

static bool of_window(const tempi_bounce *bounce, const tempi_bounce *like)
{
    return bounce->owner.kind == TEMPI_OWNED_BY_WIN && bounce->owner.win == like->owner.win &&
           (like->target == TEMPI_ALL_TARGETS || bounce->target == like->target);
}

/* Before, because a second thread's operation may be started while this one's call is under way. */
tempi_bounce *tempi_bounce_claim(MPI_Win win, int target)
{
    const tempi_bounce like = {.owner = TEMPI_OWNER_WIN(win), .target = target};
    return lingering_take(of_window, &like);
}

int tempi_bounce_synchronised(tempi_bounce *claimed, int rc)
{
    if (rc != MPI_SUCCESS) {
        lingering_add(claimed);
        return rc;
    }
    while (claimed) {
        tempi_bounce *bounce = claimed;
        claimed = claimed->next;
        const int failed = tempi_bounce_close(bounce, MPI_SUCCESS);
        rc = failed != MPI_SUCCESS ? failed : rc;
    }
    return rc;
}

int tempi_bounce_forget(tempi_bounce *claimed, int rc)
{
    if (rc == MPI_SUCCESS)
        free_all(claimed);
    else
        lingering_add(claimed);
    return rc;
}

static bool of_file(const tempi_bounce *bounce, const tempi_bounce *like)
{
    return bounce->owner.kind == TEMPI_OWNED_BY_FILE && bounce->owner.file == like->owner.file;
}

tempi_bounce *tempi_bounce_resume(MPI_File file)
{
    const tempi_bounce like = {.owner = TEMPI_OWNER_FILE(file)};
    return lingering_take(of_file, &like);
}

void *tempi_bounce_given(const tempi_bounce *bounce, const void *buffer)
{
    const held *h = bounce ? &bounce->buffers[0] : NULL;
    return h && h->shadow.bytes != 0 ? h->shadow.given : (void *)(uintptr_t)buffer;
}

/* A second half that the library refuses leaves the collective as it is. */
int tempi_bounce_end(tempi_bounce *bounce, int rc)
{
    if (bounce && rc != MPI_SUCCESS) {
        lingering_add(bounce);
        return rc;
    }
    return tempi_bounce_close(bounce, rc);
}

void tempi_bounce_closed(MPI_File file)
{
    free_all(tempi_bounce_resume(file));
}

static bool any(const tempi_bounce *bounce, const tempi_bounce *like)
{
    (void)bounce;
    (void)like;
    return true;
}

void tempi_bounce_clear(void)
{
    free_all(lingering_take(any, NULL));
}

/* ---- what cannot be ------------------------------------------------------------------------------------- */

bool tempi_bounce_refuses(const void *base, MPI_Count size)
{
    return size > 0 && tempi_memory_of(base) == TEMPI_MEMORY_DEVICE;
}

/* The error is of a class that says little; its string says it all. */
static int refusal(void)
{
    static int code = MPI_SUCCESS;
    static tempi_lock lock;
    tempi_lock_acquire(&lock);
    if (code == MPI_SUCCESS &&
        (tempi_lib.Add_error_code(MPI_ERR_BUFFER, &code) != MPI_SUCCESS ||
         tempi_lib.Add_error_string(code, "tempi: this MPI library does not take device memory, and nothing can "
                                          "stand in for memory that it is to keep") != MPI_SUCCESS))
        code = MPI_ERR_BUFFER;
    const int found = code;
    tempi_lock_release(&lock);
    return found;
}

int tempi_bounce_refuse(tempi_owner owner, const char *call)
{
    TEMPI_LOG(TEMPI_LOG_ERROR,
              "%s was given device memory, but this MPI library takes no device addresses; allocate host memory", call);
    tempi_stat_add(TEMPI_STAT_bounce_errors, 1);
    return raise_code(&owner, refusal());
}
