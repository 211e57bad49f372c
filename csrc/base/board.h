/* Which ranks of a job are on this node, told by each of them to the others: a file of shared memory that
 * all of them find by the job's name, with one entry a rank. Nobody waits for anybody. A rank without tempi
 * makes no entry, nor does one in a container with shared memory of its own.
 *
 * The file goes when the last rank of the node has made its entry, or when the first of them leaves; what is
 * mapped stays. One that a crash has left behind names a job that is over: nobody finds it, and a later
 * job's first rank clears it away when it leaves. */
#ifndef TEMPI_BASE_BOARD_H
#define TEMPI_BASE_BOARD_H

#define TEMPI_BOARD_FOLDER "/dev/shm"

typedef struct tempi_board tempi_board;

/* `local`: how many ranks will come, 0: not known. NULL where there is no shared memory, or none for us. */
tempi_board *tempi_board_join(const char *folder, const char *job, int rank, int local);
void tempi_board_leave(tempi_board *board);

/* Never falls; what was once read for an i below it stays. */
unsigned tempi_board_count(const tempi_board *board);
/* The i-th rank of this node. */
int tempi_board_rank(const tempi_board *board, unsigned i);
/* Which of them this process is; -1: there were too many. */
int tempi_board_own(const tempi_board *board);
/* Memory that they share for base/distance.h, a line for each of `local` ranks; NULL where that is not known. */
void *tempi_board_lines(const tempi_board *board);

#endif
