/* The pending messages of a process to itself, for each communicator, as far as they are known.
 *
 * MPI has no function that lists the operations that the library holds. So from the first such
 * call on, an attribute of the communicator (tempi_posted) records:
 *
 *   waiting    receives that name the own rank, do not block and have no message yet, in order
 *   untracked  receives that are not in that list may be pending; no more join it
 *   doubt      sends may be pending too; nothing is certain any more
 *
 * The next send to oneself then matches the first receive in the list whose tag agrees, by MPI's
 * order of messages (MPI-5.0 section 3.5), while there is neither doubt nor an untracked
 * receive. Any other operation that could match the process's own messages sets `doubt` for
 * good: sends without such a receive, receives from MPI_ANY_SOURCE, persistent requests,
 * combined calls that the library carries.
 *
 * With several threads the list must have the library's order. So each call updates it before it
 * posts deferred sends and before it calls the library. A message that matches a receive in the
 * list is deferred under the lock; later calls, from any thread, are posted after the deferred
 * sends or set `doubt`. A receive joins the list only after the library has it; while one thread
 * is posting it no other thread's call is certain. */
#ifndef TEMPI_SHIM_POSTED_RECEIVES_H
#define TEMPI_SHIM_POSTED_RECEIVES_H

#include "shim/abi.h"
#include "transfer/records.h"

typedef struct tempi_posted tempi_posted;

/* Whether tempi has seen all calls since MPI's init, which the lists require. */
bool tempi_posted_on(void);
void tempi_posted_start(bool seen);
void tempi_posted_stop(void);

/* Whether the peer is this process, in an intracommunicator. The communicator must be valid. */
bool tempi_posted_own(MPI_Comm comm, int peer);
/* The communicator's list; NULL: there is none and `make` is false, or no memory. */
tempi_posted *tempi_posted_of(MPI_Comm comm, bool make);

/* Whether certainly no such send or receive is pending; NULL has none. */
bool tempi_posted_clear(tempi_posted *posted);
void tempi_posted_doubt(tempi_posted *posted);
void tempi_posted_untrack(tempi_posted *posted);

/* Call before and after the posting of a receive that is to join the list; false: it cannot
 * join. */
bool tempi_posted_reserve(tempi_posted *posted);
/* `record`: the receive's; NULL: the library refused it, or (`unknown`) it is posted without
 * one. */
void tempi_posted_add(tempi_posted *posted, tempi_record *record, int tag, bool unknown);

/* Finds the receive that matches a message with that tag. `carry` hands the message over, under
 * the lock; if it returns true the receive leaves the list. Else, with several threads, doubt is
 * set. */
bool tempi_posted_match(tempi_posted *posted, int tag,
                        bool (*carry)(tempi_record *receive, void *context), void *context);
/* Whether any list has receives, so that a send should look for one. */
bool tempi_posted_waits(void);
/* The record of a listed receive ends without a message: it was cancelled, or failed. */
void tempi_posted_leave(tempi_record *record);

#endif
