/* Which ranks of a job are on this node, told by each of them to the others: a file of shared
 * memory that all of them find by the job's name, with one entry a rank. Nobody waits for anybody.
 * A rank without tempi makes no entry, nor does one in a container with shared memory of its own.
 *
 * The file goes when the last rank of the node has made its entry, or when the first of them
 * leaves; what is mapped stays. One that a crash has left behind names a job that is over: nobody
 * finds it, and a later job's first rank clears it away when it leaves. */
#ifndef TEMPI_BASE_BOARD_H
#define TEMPI_BASE_BOARD_H

#define TEMPI_NODE_REGISTRY_FOLDER "/dev/shm"

typedef struct tempi_node_registry tempi_node_registry;

/* `local`: how many ranks will come, 0: not known. NULL where there is no shared memory, or none
 * for us. */
tempi_node_registry *tempi_node_registry_join(const char *folder, const char *job, int rank,
                                              int local);
void tempi_node_registry_leave(tempi_node_registry *board);

/* Never falls; what was once read for an i below it stays. */
unsigned tempi_node_registry_count(const tempi_node_registry *board);
/* The i-th rank of this node. */
int tempi_node_registry_rank(const tempi_node_registry *board, unsigned i);
/* Which of them this process is; -1: there were too many. */
int tempi_node_registry_own(const tempi_node_registry *board);
/* Memory that they share for topology/locality.h, a line for each of `local` ranks; NULL where that
 * is not known. */
void *tempi_node_registry_lines(const tempi_node_registry *board);

#endif
