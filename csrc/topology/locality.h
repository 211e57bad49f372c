/* The locality of another rank of this node: same LLC if its core shares a last-level cache with
 * this rank's core, else other LLC. Each rank owns a line of shared memory that it alone writes, at
 * each message. Reading a line that was just written takes the core-to-core latency; one that was
 * written long ago may have left the caches, and comes from memory, as slowly as from another LLC.
 * No rank waits for another, and a rank that does not write is not classified. The result follows
 * ranks that migrate to other cores. Two ranks have the same result, other LLC only if both have
 * found that, so that they carry a message by the same method, as predictions assume. */
#ifndef TEMPI_TOPOLOGY_LOCALITY_H
#define TEMPI_TOPOLOGY_LOCALITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes per rank in the shared memory: two lines, as some processors fetch lines in pairs. */
enum { TEMPI_LOCALITY_LINE = 128 };

typedef struct tempi_locality tempi_locality;

/* `lines`: the lines of n ranks in mapped pages, zeroed before the first rank joins, and valid as
 * long as the object. NULL: out of memory, or this rank is not among the n (more ranks came than
 * the launcher said). */
tempi_locality *tempi_locality_open(void *lines, int own, int n);
void tempi_locality_close(tempi_locality *locality);

/* Whether rank i had another LLC at its last probe. Probes now and then, more often the more bytes
 * go there. Any thread may call it. */
bool tempi_locality_is_other_llc(tempi_locality *locality, int i, int64_t bytes);
/* Probes now. */
void tempi_locality_probe(tempi_locality *locality, int i);

#endif
