/* memory/partition.h: a message whose bytes lie in several memories. */
#ifndef TEMPI_MEMORY_SPREAD_H
#define TEMPI_MEMORY_SPREAD_H

#include "memory/kind.h"
#include "pack/parts.h"

/* Whether bytes of the message could lie elsewhere than its lowest one, which is in *lowest. Costs
 * nothing where that is an allocation that all of them are in; for plain memory at most one
 * question to the driver. */
bool tempi_memory_may_partition(const tempi_layout *layout, int64_t count, const void *mem,
                                const tempi_memory *lowest);

/* What was found. */
typedef enum tempi_partition {
    TEMPI_PARTITION_ONE,    /* all is in the memory that *one describes */
    TEMPI_PARTITION_MIXED,  /* *parts has one part for the host's and one for each device's */
    TEMPI_PARTITION_UNKNOWN /* some of it is not to be touched by tempi, or memory is out */
} tempi_partition;

/* Looks at the memory of every box, and deals the boxes out. Where a box itself lies in several
 * memories (the passes join what is evenly spaced, whatever it is), it is cut. */
tempi_partition tempi_memory_partition(const tempi_layout *layout, int64_t count, const void *mem,
                                       tempi_memory *one, tempi_parts **parts);

#endif
