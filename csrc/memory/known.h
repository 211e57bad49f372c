/* memory/known.h: the allocations that the driver was asked about, of the whole process.
 *
 * The driver does not tell when memory is freed: the CUDA runtime linked into a program calls it
 * past every symbol that could be interposed. So a known allocation holds
 *
 *   without a query   while a message from or into it is pending: until it is complete its buffer
 *                     must not be freed (MPI-5.0, 3.7.2: it may be accessed only after completion);
 *                     and while the program has registered it
 *   by its buffer id  otherwise: one small query, which notices every other allocation there
 */
#ifndef TEMPI_MEMORY_KNOWN_H
#define TEMPI_MEMORY_KNOWN_H

#include "memory/kind.h"

typedef struct tempi_known {
    tempi_memory memory;
    int32_t ordinal; /* of memory that belongs to no context; else -1 */
    bool in_use;     /* it holds without a query */
} tempi_known;

/* The known allocation of an address. */
bool tempi_known_find(const void *address, tempi_known *out);
/* Notes an answer of the driver, in place of all that it overlaps. */
void tempi_known_note(const tempi_memory *memory, int32_t ordinal);
/* Forgets an allocation that is gone. */
void tempi_known_drop(const tempi_known *known);
/* The context slot that pending messages use for memory of no context on that device. */
bool tempi_known_slot(int32_t ordinal, int32_t *slot);

/* Marks the known allocation of an address as in use by a message, until the matching unpin; -1: it
 * is not known. */
int tempi_memory_pin(const void *address);
void tempi_memory_unpin(int pin);

/* Registers the known allocation of an address once more (1) or once less (-1); false: it is not
 * known, or was not registered. */
bool tempi_known_register(const void *address, int change);

#endif
