/* What of a process's messages to itself is pending, communicator by communicator, as far as it is
 * known.
 *
 * What the library holds cannot be asked. A ledger remembers, from the first such call on, as an
 * attribute of the communicator:
 *
 *   waiting    the receives that name the own rank, do not block and have no message yet, in their
 * order untracked  receives may be pending that are not in that list; no more join it doubt      so
 * may sends be; nothing is certain any more
 *
 * The next send to oneself then has the first receive in the list whose tag agrees, by MPI's order
 * of messages (MPI-5.0 section 3.5), while there is neither doubt nor something untracked. Whatever
 * else could be matched with the process's own messages makes it doubtful for good: sends that have
 * no such receive, receives from MPI_ANY_SOURCE, persistent requests, combined calls that the
 * library carries.
 *
 * With several threads the library's order must be the ledger's. So each call that touches it does
 * so before it posts what is queued and before it calls the library; a message that has its receive
 * by the ledger is queued under the lock, and what comes later, from any thread, is posted behind
 * the queue or makes the ledger doubtful. A receive is not in the list before the library has it;
 * while one thread is on its way there nobody else's call is certain.
 */
#ifndef TEMPI_SHIM_LEDGER_H
#define TEMPI_SHIM_LEDGER_H

#include "shim/abi.h"
#include "transfer/records.h"

typedef struct tempi_posted tempi_posted;

/* Whether all calls since MPI's init were seen, so that ledgers mean anything. */
bool tempi_posted_on(void);
void tempi_posted_start(bool seen);
void tempi_posted_stop(void);

/* The peer is this process, in an intracommunicator. The communicator must be a good one. */
bool tempi_posted_own(MPI_Comm comm, int peer);
/* NULL: none yet, and none wanted (`make`), or no memory. */
tempi_posted *tempi_posted_of(MPI_Comm comm, bool make);

/* No message or receive of the kind above is pending, for certain; NULL has none. */
bool tempi_posted_clear(tempi_posted *ledger);
void tempi_posted_doubt(tempi_posted *ledger);
void tempi_posted_untrack(tempi_posted *ledger);

/* Around the posting of a receive that is to join the list: false, it cannot. */
bool tempi_posted_reserve(tempi_posted *ledger);
/* `record`: of the receive; NULL: the library refused it. `unknown`: it is posted and has none. */
void tempi_posted_add(tempi_posted *ledger, tempi_record *record, int tag, bool unknown);

/* The receive that a message with that tag has, or NULL. `carry` hands the message over, under the
 * lock: when it returns true the receive is out of the list. Else, with several threads, there is
 * doubt. */
bool tempi_posted_meet(tempi_posted *ledger, int tag,
                       bool (*carry)(tempi_record *receive, void *context), void *context);
/* Receives are in lists, so that a send is worth a look. */
bool tempi_posted_waits(void);
/* The record of a receive in a list ends without a message: it was cancelled, or failed. */
void tempi_posted_leave(tempi_record *record);

#endif
