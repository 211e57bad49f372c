/* Reads and writes the memory of another process of this user: one copy from layout to layout,
 * where the runs are long. Each run costs the kernel a look-up of its pages, so short ones go
 * through the ring.
 *
 * Not every system permits it (Yama, containers): each process tries it out. */
#ifndef TEMPI_EXCHANGE_SINGLE_COPY_H
#define TEMPI_EXCHANGE_SINGLE_COPY_H

#include "exchange/copy_choice.h"
#include "exchange/nest_walk.h"

#include <sys/types.h>

/* What others read to try it: it lies in the process's own memory. */
typedef struct tempi_probe {
    int64_t process;
    uint64_t address;
    uint64_t value;
    int64_t segment; /* of XPMEM; 0: none */
} tempi_probe;

void tempi_single_copy_offer(tempi_probe *out);
/* Whether its number names the process that made that offer, and this one can get at its memory. */
bool tempi_single_copy_reaches(const tempi_probe *offer);
/* How this process can get at the memory of the one that made that offer: TEMPI_ACCESS_*. Whether
 * mapped memory can be opened is found out with the first one. */
unsigned tempi_single_copy_access(const tempi_probe *offer);

/* Reads the next `bytes` bytes of a nest of that process into a nest of this one, and steps over
 * them. False: not all of them could be read; some may have been stored. */
bool tempi_single_copy_read(pid_t process, tempi_nest_walk *from, tempi_nest_walk *to,
                            int64_t bytes);
/* Likewise writes the next bytes of a nest of this process into one of that process, which must be
 * known to be reached. */
bool tempi_single_copy_write(pid_t process, tempi_nest_walk *from, tempi_nest_walk *to,
                             int64_t bytes);

#endif
