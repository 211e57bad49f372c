/* The kind of memory that an address is in. Host kernels may touch memory for which
 * tempi_memory_host_readable returns true.
 *
 * Cost: one load while the process can have no GPU run-time; 11 to 35 ns (reading the loader's
 * counter of loaded objects) on a machine with a GPU in a program that has not loaded its driver;
 * after that one driver query, a smaller one for an allocation that is known (known.h).
 * Pageable host addresses are not cached: a later allocation may reuse them. */
#ifndef TEMPI_MEMORY_KIND_H
#define TEMPI_MEMORY_KIND_H

#include <stdbool.h>
#include <stdint.h>

typedef enum tempi_memory_kind {
    TEMPI_MEMORY_HOST,    /* pageable memory */
    TEMPI_MEMORY_PINNED,  /* host memory that a device reaches: allocated by CUDA or registered */
    TEMPI_MEMORY_MANAGED, /* host and device reach it; pages migrate */
    TEMPI_MEMORY_DEVICE,  /* one CUDA device's: cudaMalloc, pools, virtual-memory mappings */
    /* Another vendor's GPU, or unknown: left to the MPI library. */
    TEMPI_MEMORY_FOREIGN
} tempi_memory_kind;

/* Attributes of an address. Pageable and foreign memory have only a kind. */
typedef struct tempi_memory {
    tempi_memory_kind kind;
    /* Context slot (cuda/device.h): a device's ordinal, or a context of the program; -1: none. */
    int32_t device;
    uintptr_t base;     /* of the allocation; 0: unknown */
    int64_t size;       /* of the allocation, bytes */
    uint64_t buffer_id; /* the driver's, never reused; 0: none */
} tempi_memory;

/* True if a GPU run-time can be in this process at all; determined once at start. */
extern bool tempi_memory_mixed;

void tempi_memory_start(void);
tempi_memory_kind tempi_memory_ask(const void *address, tempi_memory *out);

/* This thread's next calls find that allocation there without a query; NULL: no longer. */
void tempi_memory_vouch(const tempi_memory *memory);

/* One call of this thread, during which the program frees none of its memory: a known allocation is
 * asked for once. They may be nested. */
void tempi_memory_begin_call(void);
void tempi_memory_end_call(void);

/* Describes an address; returns the kind. */
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

/* Whether the CPU may read and write it directly. */
static inline bool tempi_memory_host_readable(tempi_memory_kind kind)
{
    return kind <= TEMPI_MEMORY_MANAGED;
}

#endif
