#include "shim/p2p/posted_receives.h"
#include "shim/comm/comm_attribute.h"

#include <stdatomic.h>
#include <stdlib.h>

struct tempi_posted {
    tempi_posted *next; /* in the `dead` list */
    bool doubt, untracked;
    bool posting;        /* a receive is being posted and will join the list */
    tempi_record *first; /* linked by `next_posted` */
};

static int keyval = MPI_KEYVAL_INVALID;
static _Atomic bool known;
static _Atomic int waiting; /* receives in all lists */
static tempi_lock lock;     /* guards all lists; never held while the library looks up attributes */
static tempi_lock making;   /* held to make one list only for each communicator */
static tempi_posted *_Atomic dead; /* lists whose communicators are gone */

/* ---- making and freeing lists ---------------------------------------------------------------- */

/* The library calls this, perhaps under its own lock, so it takes none of ours. */
static int delete_posted(MPI_Comm comm, int key, void *value, void *state)
{
    (void)comm, (void)key, (void)state;
    tempi_posted *posted = value;
    posted->next = atomic_load(&dead);
    while (!atomic_compare_exchange_weak(&dead, &posted->next, posted))
        ;
    return MPI_SUCCESS;
}

/* Frees dead lists: their receives outlive the communicator's handle. Caller holds the lock. */
static void bury(void)
{
    tempi_posted *posted = atomic_exchange(&dead, NULL);
    while (posted) {
        tempi_posted *gone = posted;
        posted = posted->next;
        for (tempi_record *r = gone->first; r; r = r->next_posted) {
            r->posted_list = NULL;
            atomic_fetch_sub(&waiting, 1);
        }
        free(gone);
    }
}

void tempi_posted_start(bool seen)
{
    known = false;
    if (keyval == MPI_KEYVAL_INVALID)
        known = tempi_lib.Comm_create_keyval(tempi_comm_attribute_not_copied, delete_posted,
                                             &keyval, NULL) == MPI_SUCCESS &&
                seen;
}

/* Lists of communicators that are never freed stay: the library may still delete them. */
void tempi_posted_stop(void)
{
    known = false;
    if (keyval != MPI_KEYVAL_INVALID)
        tempi_lib.Comm_free_keyval(&keyval);
    keyval = MPI_KEYVAL_INVALID;
}

bool tempi_posted_on(void)
{
    return known;
}

bool tempi_posted_own(MPI_Comm comm, int peer)
{
    int rank, between = 0;
    return peer >= 0 && tempi_lib.Comm_rank(comm, &rank) == MPI_SUCCESS && rank == peer &&
           tempi_lib.Comm_test_inter(comm, &between) == MPI_SUCCESS && !between;
}

static tempi_posted *look_up(MPI_Comm comm, bool *good)
{
    void *value = NULL;
    int found = 0;
    *good = tempi_lib.Comm_get_attr(comm, keyval, &value, &found) == MPI_SUCCESS;
    return *good && found ? value : NULL;
}

static tempi_posted *make(MPI_Comm comm)
{
    tempi_posted *made = calloc(1, sizeof *made);
    if (made && tempi_lib.Comm_set_attr(comm, keyval, made) == MPI_SUCCESS)
        return made;
    free(made);
    known = false; /* its operations cannot be recorded */
    return NULL;
}

tempi_posted *tempi_posted_of(MPI_Comm comm, bool wanted)
{
    bool good;
    tempi_posted *posted = look_up(comm, &good);
    if (posted || !good || !wanted)
        return posted;
    tempi_lock_acquire(&making);
    posted = look_up(comm, &good);
    if (!posted && good)
        posted = make(comm);
    tempi_lock_release(&making);
    return posted;
}

/* ---- state of a list ------------------------------------------------------------------------- */

bool tempi_posted_clear(tempi_posted *posted)
{
    if (!posted)
        return true;
    tempi_lock_acquire(&lock);
    const bool clear = !posted->doubt && !posted->posting && !posted->first;
    tempi_lock_release(&lock);
    return clear;
}

void tempi_posted_doubt(tempi_posted *posted)
{
    tempi_lock_acquire(&lock);
    posted->doubt = true;
    tempi_lock_release(&lock);
}

void tempi_posted_untrack(tempi_posted *posted)
{
    tempi_lock_acquire(&lock);
    posted->untracked = true;
    tempi_lock_release(&lock);
}

/* If two receives are being posted at once, their order is unknown. */
bool tempi_posted_reserve(tempi_posted *posted)
{
    tempi_lock_acquire(&lock);
    bury();
    posted->doubt |= posted->posting;
    const bool reserved = !posted->doubt && !posted->untracked;
    posted->posting |= reserved;
    tempi_lock_release(&lock);
    return reserved;
}

static void append(tempi_posted *posted, tempi_record *record)
{
    tempi_record **end = &posted->first;
    while (*end)
        end = &(*end)->next_posted;
    *end = record;
    record->next_posted = NULL;
    record->posted_list = posted;
    atomic_fetch_add(&waiting, 1);
}

void tempi_posted_add(tempi_posted *posted, tempi_record *record, int tag, bool unknown)
{
    tempi_lock_acquire(&lock);
    posted->posting = false;
    posted->doubt |= unknown || (record && posted->untracked);
    if (record && !posted->doubt) {
        record->tag = tag;
        append(posted, record);
    }
    tempi_lock_release(&lock);
}

bool tempi_posted_waits(void)
{
    return atomic_load_explicit(&waiting, memory_order_relaxed) != 0;
}

static void take_out(tempi_record **place)
{
    tempi_record *record = *place;
    *place = record->next_posted;
    record->posted_list = NULL;
    atomic_fetch_sub(&waiting, 1);
}

bool tempi_posted_match(tempi_posted *posted, int tag,
                        bool (*carry)(tempi_record *receive, void *context), void *context)
{
    tempi_lock_acquire(&lock);
    tempi_record **place = &posted->first;
    while (*place && (*place)->tag != tag && (*place)->tag != MPI_ANY_TAG)
        place = &(*place)->next_posted;
    const bool certain = *place && !posted->doubt && !posted->untracked && !posted->posting;
    const bool carried = certain && carry(*place, context);
    if (carried)
        take_out(place);
    else
        posted->doubt |= tempi_threads_are_shared(); /* with one thread: set after the call */
    tempi_lock_release(&lock);
    return carried;
}

void tempi_posted_leave(tempi_record *record)
{
    tempi_lock_acquire(&lock);
    bury();
    tempi_posted *posted = record->posted_list;
    if (posted) {
        tempi_record **place = &posted->first;
        while (*place != record)
            place = &(*place)->next_posted;
        take_out(place);
        posted->doubt = true;
    }
    tempi_lock_release(&lock);
}
