#include "shim/p2p/posted_receives.h"

#include <stdatomic.h>
#include <stdlib.h>

struct tempi_posted {
    tempi_posted *next; /* among the dead */
    bool doubt, untracked;
    bool posting;        /* a receive is on its way into the list */
    tempi_record *first; /* by `behind` */
};

static int keyval = MPI_KEYVAL_INVALID;
static _Atomic bool known;
static _Atomic int waiting; /* receives in all lists */
static tempi_lock lock;   /* of the ledgers; the library's attributes are not looked at under it */
static tempi_lock making; /* so that a communicator gets one */
static tempi_posted *_Atomic dead; /* their communicators are gone */

/* ---- life ------------------------------------------------------------------------------------ */

/* Nothing is under way in a communicator that was just made. (The library's own functions of this
 * kind are symbols on some, and we must have none undefined.) */
static int copy_nothing(MPI_Comm comm, int key, void *state, void *in, void *out, int *flag)
{
    (void)comm, (void)key, (void)state, (void)in, (void)out;
    *flag = 0;
    return MPI_SUCCESS;
}

/* Called inside the library, perhaps under a lock of its own, so it waits for none of ours. */
static int delete_posted(MPI_Comm comm, int key, void *value, void *state)
{
    (void)comm, (void)key, (void)state;
    tempi_posted *ledger = value;
    ledger->next = atomic_load(&dead);
    while (!atomic_compare_exchange_weak(&dead, &ledger->next, ledger))
        ;
    return MPI_SUCCESS;
}

/* Receives in the list outlive the handle of their communicator. Caller holds the lock. */
static void bury(void)
{
    tempi_posted *ledger = atomic_exchange(&dead, NULL);
    while (ledger) {
        tempi_posted *gone = ledger;
        ledger = ledger->next;
        for (tempi_record *r = gone->first; r; r = r->behind) {
            r->waits_in = NULL;
            atomic_fetch_sub(&waiting, 1);
        }
        free(gone);
    }
}

void tempi_posted_start(bool seen)
{
    known = false;
    if (keyval == MPI_KEYVAL_INVALID)
        known = tempi_lib.Comm_create_keyval(copy_nothing, delete_posted, &keyval, NULL) ==
                    MPI_SUCCESS &&
                seen;
}

/* What hangs on communicators that are never freed stays: the library may still come for it. */
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
    known = false; /* what happens in it would be forgotten */
    return NULL;
}

tempi_posted *tempi_posted_of(MPI_Comm comm, bool wanted)
{
    bool good;
    tempi_posted *ledger = look_up(comm, &good);
    if (ledger || !good || !wanted)
        return ledger;
    tempi_lock_acquire(&making);
    ledger = look_up(comm, &good);
    if (!ledger && good)
        ledger = make(comm);
    tempi_lock_release(&making);
    return ledger;
}

/* ---- what is known --------------------------------------------------------------------------- */

bool tempi_posted_clear(tempi_posted *ledger)
{
    if (!ledger)
        return true;
    tempi_lock_acquire(&lock);
    const bool clear = !ledger->doubt && !ledger->posting && !ledger->first;
    tempi_lock_release(&lock);
    return clear;
}

void tempi_posted_doubt(tempi_posted *ledger)
{
    tempi_lock_acquire(&lock);
    ledger->doubt = true;
    tempi_lock_release(&lock);
}

void tempi_posted_untrack(tempi_posted *ledger)
{
    tempi_lock_acquire(&lock);
    ledger->untracked = true;
    tempi_lock_release(&lock);
}

/* Of two that are being posted nobody knows which is first. */
bool tempi_posted_reserve(tempi_posted *ledger)
{
    tempi_lock_acquire(&lock);
    bury();
    ledger->doubt |= ledger->posting;
    const bool reserved = !ledger->doubt && !ledger->untracked;
    ledger->posting |= reserved;
    tempi_lock_release(&lock);
    return reserved;
}

static void append(tempi_posted *ledger, tempi_record *record)
{
    tempi_record **end = &ledger->first;
    while (*end)
        end = &(*end)->behind;
    *end = record;
    record->behind = NULL;
    record->waits_in = ledger;
    atomic_fetch_add(&waiting, 1);
}

void tempi_posted_add(tempi_posted *ledger, tempi_record *record, int tag, bool unknown)
{
    tempi_lock_acquire(&lock);
    ledger->posting = false;
    ledger->doubt |= unknown || (record && ledger->untracked);
    if (record && !ledger->doubt) {
        record->tag = tag;
        append(ledger, record);
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
    *place = record->behind;
    record->waits_in = NULL;
    atomic_fetch_sub(&waiting, 1);
}

bool tempi_posted_meet(tempi_posted *ledger, int tag,
                       bool (*carry)(tempi_record *receive, void *context), void *context)
{
    tempi_lock_acquire(&lock);
    tempi_record **place = &ledger->first;
    while (*place && (*place)->tag != tag && (*place)->tag != MPI_ANY_TAG)
        place = &(*place)->behind;
    const bool certain = *place && !ledger->doubt && !ledger->untracked && !ledger->posting;
    const bool carried = certain && carry(*place, context);
    if (carried)
        take_out(place);
    else
        ledger->doubt |= tempi_threads_multiple; /* else when the library has taken it */
    tempi_lock_release(&lock);
    return carried;
}

void tempi_posted_leave(tempi_record *record)
{
    tempi_lock_acquire(&lock);
    bury();
    tempi_posted *ledger = record->waits_in;
    if (ledger) {
        tempi_record **place = &ledger->first;
        while (*place != record)
            place = &(*place)->behind;
        take_out(place);
        ledger->doubt = true;
    }
    tempi_lock_release(&lock);
}
