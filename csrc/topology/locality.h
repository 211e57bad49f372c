/* How far another rank of this node is: near, if its core and this one's have a cache in common, or
 * far. Each rank has a line of shared memory that it alone writes, now and then; to read one that
 * was written since takes as long as a line takes from core to core. Nobody waits for anybody, and
 * a rank that does not write is not judged. What was found follows ranks that are moved to other
 * cores. */
#ifndef TEMPI_BASE_DISTANCE_H
#define TEMPI_BASE_DISTANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a rank in the memory that they share: two lines, as some processors fetch them by pairs.
 */
enum { TEMPI_DISTANCE_LINE = 128 };

typedef struct tempi_locality tempi_locality;

/* `lines`: those of n ranks, zero before the first of them, and as long as this. NULL without
 * memory, or if this rank is none of the n (more have come than the launcher said). */
tempi_locality *tempi_locality_open(void *lines, int own, int n);
void tempi_locality_close(tempi_locality *distance);

/* Whether rank i was far when it was looked at last; looks now and then, the more often the more
 * bytes go there. Any thread may ask. */
bool tempi_locality_far(tempi_locality *distance, int i, int64_t bytes);
/* Looks now. */
void tempi_locality_look(tempi_locality *distance, int i);

#endif
