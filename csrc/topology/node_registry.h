/* The node registry: a file of shared memory in which the ranks of a job on this node register
 * themselves. All of them find it by the job's name; it has one entry per rank. No rank waits for
 * another. A rank without tempi makes no entry, nor does one in a container with its own shared
 * memory.
 *
 * The file is removed when the last rank of the node has registered, or when the first one leaves;
 * mappings stay valid. A file left by a crash names a job that has ended: nobody finds it, and the
 * first rank of a later job removes it when it leaves. */
#ifndef TEMPI_TOPOLOGY_NODE_REGISTRY_H
#define TEMPI_TOPOLOGY_NODE_REGISTRY_H

#include <stdbool.h>

#define TEMPI_NODE_REGISTRY_FOLDER "/dev/shm"

typedef struct tempi_node_registry tempi_node_registry;

/* `local`: number of ranks that will register, 0: unknown. NULL: no usable shared memory. If
 * another process has registered as that rank, this one has no entry, and agrees with nobody. */
tempi_node_registry *tempi_node_registry_join(const char *folder, const char *job, int rank,
                                              int local);
void tempi_node_registry_leave(tempi_node_registry *registry);

/* Ranks register before the MPI library's own MPI_Init and call this after it: from then on this
 * process knows the entries of that moment, and the others can tell which these are. `joins`: false
 * for a process that takes part in no agreement, as it registered later. */
void tempi_node_registry_settle(tempi_node_registry *registry, bool joins);
/* The index of a rank; -1: it has not registered. */
int tempi_node_registry_find(const tempi_node_registry *registry, int rank);
/* Whether a member knows all entries up to index `last`; waits if it is in MPI_Init. A group of
 * members of which each knows the last one agrees: all of them get that answer, without a message
 * and whether or not MPI_Init synchronizes. */
bool tempi_node_registry_knows(const tempi_node_registry *registry, int index, int last);

/* Never decreases; an entry below it never changes. */
unsigned tempi_node_registry_count(const tempi_node_registry *registry);
/* The i-th rank of this node. */
int tempi_node_registry_rank(const tempi_node_registry *registry, unsigned i);
/* The index of this process; -1: it has no entry, as another process has, or there were too many.
 */
int tempi_node_registry_own(const tempi_node_registry *registry);
/* True once for each of 64 lines: the process that gets it writes the line for all of the node. */
bool tempi_node_registry_says(tempi_node_registry *registry, unsigned line);
/* Shared memory for choose/message_trials.h, zero at first. */
enum { TEMPI_NODE_REGISTRY_MESSAGES = 16384 };
void *tempi_node_registry_messages(const tempi_node_registry *registry);
/* Shared memory for topology/locality.h, a line for each of `local` ranks; NULL if their number is
 * unknown. */
void *tempi_node_registry_lines(const tempi_node_registry *registry);

#endif
