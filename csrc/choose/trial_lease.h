/* One trial of messages at a time on a node (message_trials.h): the process that holds the lease, a
 * word of shared memory, runs one. It ends by itself, as a process may end too. */
#ifndef TEMPI_CHOOSE_TRIAL_LEASE_H
#define TEMPI_CHOOSE_TRIAL_LEASE_H

#include "choose/message_trials.h"

/* Before the others, while tempi_passing.trials is set. `own`: the index of this process among the
 * node's. */
void tempi_trial_lease_start(int own);

/* All times are nanoseconds. Another process may take it over after `patience` without a renewal.
 * False: another process has it, or has taken it over. */
bool tempi_trial_lease_take(int64_t now, int64_t patience);
bool tempi_trial_lease_renew(int64_t now, int64_t patience);
void tempi_trial_lease_return(void);

/* Until then no trial is repeated; whether it is so now. */
void tempi_trial_rest_until(int64_t time);
bool tempi_trial_rests(int64_t now);

/* Whether some process holds it, and whether none does any more. */
bool tempi_trial_lease_is_held(void);
bool tempi_trial_lease_is_over(int64_t now);
/* Ends it if its process has left it. */
void tempi_trial_lease_look(int64_t now);

#endif
