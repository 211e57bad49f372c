/* memory/partition.h: a message whose bytes lie in several memories. */
#ifndef TEMPI_MEMORY_PARTITION_H
#define TEMPI_MEMORY_PARTITION_H

#include "memory/kind.h"
#include "pack/parts.h"

/* Whether bytes of the message could lie in another memory than its lowest byte, which *lowest
 * describes. Costs nothing if one allocation contains them all; for pageable memory, at most one
 * driver query. */
bool tempi_memory_may_partition(const tempi_layout *layout, int64_t count, const void *mem,
                                const tempi_memory *lowest);

/* The result of a partition. */
typedef enum tempi_partition {
    TEMPI_PARTITION_ONE,    /* all bytes are in the memory that *one describes */
    TEMPI_PARTITION_MIXED,  /* *parts has one part for the host and one per device */
    TEMPI_PARTITION_UNKNOWN /* tempi must not touch some of it, or out of memory */
} tempi_partition;

/* Queries the memory of every box, and assigns the boxes to parts. A box that itself lies in
 * several memories is cut (the passes join evenly spaced runs regardless of their memory). */
tempi_partition tempi_memory_partition(const tempi_layout *layout, int64_t count, const void *mem,
                                       tempi_memory *one, tempi_parts **parts);

#endif
