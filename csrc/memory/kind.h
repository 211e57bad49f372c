/* Whose bytes are these? Host kernels may touch what tempi_memory_host_readable says yes to.
 *
 * Cost: one load while the process can have no GPU run-time; 11 to 35 ns (a look at the loader's
 * counter of loaded objects) on a machine with a GPU in a program that has not loaded its driver;
 * after that one driver query, a smaller one for an allocation that this thread has asked about
 * lately. Nothing is remembered about plain host addresses: a later allocation may be given the
 * same ones.
 */
#ifndef TEMPI_MEMORY_KIND_H
#define TEMPI_MEMORY_KIND_H

#include <stdbool.h>
#include <stdint.h>

typedef enum tempi_memory_kind {
    TEMPI_MEMORY_HOST,    /* plain memory */
    TEMPI_MEMORY_PINNED,  /* host memory that a device reaches: allocated by CUDA or registered */
    TEMPI_MEMORY_MANAGED, /* both sides reach it; pages move */
    TEMPI_MEMORY_DEVICE,  /* one CUDA device's: cudaMalloc, pools, virtual-memory mappings */
    TEMPI_MEMORY_FOREIGN  /* another vendor's GPU's, or not known: only the MPI library may judge it
                           */
} tempi_memory_kind;

/* What is known of an address. Plain and foreign memory have a kind only. */
typedef struct tempi_memory {
    tempi_memory_kind kind;
    int32_t device; /* its place (cuda/device.h): an ordinal, or a context's of the program's own;
                       -1: none */
    uintptr_t base; /* of the allocation; 0: not known */
    int64_t size;   /* of the allocation, bytes */
    uint64_t buffer_id; /* the driver's, never used twice; 0: none */
} tempi_memory;

/* True where a GPU run-time could be in this process at all; found out once at start. */
extern bool tempi_memory_mixed;

void tempi_memory_start(void);
tempi_memory_kind tempi_memory_ask(const void *address, tempi_memory *out);
/* The same without what is remembered: for tests. */
void tempi_memory_forget(void);

/* All that is known of an address; returns the kind. */
static inline tempi_memory_kind tempi_memory_describe(const void *address, tempi_memory *out)
{
    if (__builtin_expect(tempi_memory_mixed, 0))
        return tempi_memory_ask(address, out);
    *out = (tempi_memory){.kind = TEMPI_MEMORY_HOST, .device = -1};
    return TEMPI_MEMORY_HOST;
}

static inline tempi_memory_kind tempi_memory_of(const void *address)
{
    tempi_memory memory;
    return __builtin_expect(tempi_memory_mixed, 0) ? tempi_memory_ask(address, &memory)
                                                   : TEMPI_MEMORY_HOST;
}

/* Whether the CPU may read and write it as it is. */
static inline bool tempi_memory_host_readable(tempi_memory_kind kind)
{
    return kind <= TEMPI_MEMORY_MANAGED;
}

#endif
