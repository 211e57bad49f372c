/* Whose bytes are these? Host kernels may touch plain host memory only. */
#ifndef TEMPI_MEMORY_KIND_H
#define TEMPI_MEMORY_KIND_H

#include <stdbool.h>

typedef enum tempi_memory_kind {
    TEMPI_MEMORY_HOST,   /* the CPU may read and write it */
    TEMPI_MEMORY_FOREIGN /* a GPU's, or not known: only the MPI library may judge it */
} tempi_memory_kind;

/* True where a GPU run-time could be in this process at all; found out once at start. */
extern bool tempi_memory_mixed;

void tempi_memory_start(void);
tempi_memory_kind tempi_memory_ask(const void *address);

static inline tempi_memory_kind tempi_memory_of(const void *address)
{
    return tempi_memory_mixed ? tempi_memory_ask(address) : TEMPI_MEMORY_HOST;
}

#endif
