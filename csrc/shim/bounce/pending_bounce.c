/* pending_bounce.c: bounces that outlive their call. Those of one-sided operations last until
 * the window's next synchronisation (or completion of their request, if that is earlier); those
 * of split collectives of files until their second half. */
#include "shim/bounce/bounce_descriptor.h"

#include <string.h>

int64_t tempi_bounces_pending;

static struct {
    tempi_lock lock;
    tempi_bounce *first;
} pending;

static void pending_add(tempi_bounce *list)
{
    tempi_lock_acquire(&pending.lock);
    tempi_bounce **end = &pending.first;
    while (*end)
        end = &(*end)->next;
    *end = list;
    for (; list; list = list->next)
        __atomic_fetch_add(&tempi_bounces_pending, 1, __ATOMIC_RELAXED);
    tempi_lock_release(&pending.lock);
}

typedef bool (*chosen)(const tempi_bounce *bounce, const tempi_bounce *like);

static tempi_bounce *pending_take(chosen is, const tempi_bounce *like)
{
    tempi_bounce *taken = NULL, **end = &taken;
    tempi_lock_acquire(&pending.lock);
    for (tempi_bounce **at = &pending.first; *at;) {
        tempi_bounce *bounce = *at;
        if (!is(bounce, like)) {
            at = &bounce->next;
            continue;
        }
        *at = bounce->next;
        bounce->next = NULL;
        *end = bounce;
        end = &bounce->next;
        __atomic_fetch_sub(&tempi_bounces_pending, 1, __ATOMIC_RELAXED);
    }
    tempi_lock_release(&pending.lock);
    return taken;
}

void tempi_bounce_list(tempi_bounce *bounce, int target)
{
    bounce->target = target;
    __atomic_add_fetch(&bounce->holders, 1, __ATOMIC_RELAXED);
    pending_add(bounce);
}

static bool itself(const tempi_bounce *bounce, const tempi_bounce *like)
{
    return bounce == like;
}

/* MPICH 4.0 reports a get with a request as complete while bytes of a datatype with gaps are
 * still on their way. 5.0 does not; versions between were not tested. */
static bool completes_early(void)
{
    enum { UNKNOWN, NO, YES };
    static int early = UNKNOWN;
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    if (__atomic_load_n(&early, __ATOMIC_RELAXED) == UNKNOWN) {
        const bool known = tempi_lib.Get_library_version(version, &length) == MPI_SUCCESS;
        __atomic_store_n(&early, known && strstr(version, "MPICH Version:\t4.") ? YES : NO,
                         __ATOMIC_RELAXED);
    }
    return __atomic_load_n(&early, __ATOMIC_RELAXED) == YES;
}

void tempi_bounce_unlist(tempi_bounce *bounce)
{
    if (!tempi_bounce_is_pending())
        return;
    tempi_bounce *listed = pending_take(itself, bounce);
    /* Not synchronised yet, so the epoch that the operation needs is still open. */
    if (listed && completes_early())
        tempi_lib.Win_flush_local(listed->target, listed->owner.win);
    tempi_bounce_free(listed);
}

static void free_all(tempi_bounce *list)
{
    while (list) {
        tempi_bounce *bounce = list;
        list = list->next;
        tempi_bounce_free(bounce);
    }
}

/* Lists it until the window's next synchronisation, or the file's second half. */
static int stay(tempi_bounce *bounce, int rc)
{
    if (bounce && rc == MPI_SUCCESS)
        pending_add(bounce);
    else
        tempi_bounce_free(bounce);
    return rc;
}

int tempi_bounce_pend(tempi_bounce *bounce, int rc, int target)
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

/* Claimed before the synchronisation, because another thread may start an operation during it. */
tempi_bounce *tempi_bounce_claim(MPI_Win win, int target)
{
    const tempi_bounce like = {.owner = TEMPI_OWNER_WIN(win), .target = target};
    return pending_take(of_window, &like);
}

int tempi_bounce_synchronised(tempi_bounce *claimed, int rc)
{
    if (rc != MPI_SUCCESS) {
        pending_add(claimed);
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
        pending_add(claimed);
    return rc;
}

static bool of_file(const tempi_bounce *bounce, const tempi_bounce *like)
{
    return bounce->owner.kind == TEMPI_OWNED_BY_FILE && bounce->owner.file == like->owner.file;
}

tempi_bounce *tempi_bounce_resume(MPI_File file)
{
    const tempi_bounce like = {.owner = TEMPI_OWNER_FILE(file)};
    return pending_take(of_file, &like);
}

void *tempi_bounce_given(const tempi_bounce *bounce, const void *buffer)
{
    const tempi_bounce_descriptor *h = bounce ? &bounce->buffers[0] : NULL;
    return h && h->host.bytes != 0 ? h->host.given : (void *)(uintptr_t)buffer;
}

/* If the library refuses the second half, the collective stays pending. */
int tempi_bounce_end(tempi_bounce *bounce, int rc)
{
    if (bounce && rc != MPI_SUCCESS) {
        pending_add(bounce);
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
    free_all(pending_take(any, NULL));
}
