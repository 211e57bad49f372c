/* ptx.h: the interface between a translated PTX module and the emulated device.
 *
 * A kernel is a function that runs one thread until it exits, faults or must wait for others. A
 * kernel that waits keeps its registers in a struct of its own, and continues at `pc` when called
 * again. Every memory access is bounds-checked; each instruction that accesses global memory caches
 * the allocation that it found last.
 *
 * Translated modules are compiled against this header and ptx_compute.h, and nothing else of
 * tempi. */
#ifndef TEMPI_EMULATOR_PTX_H
#define TEMPI_EMULATOR_PTX_H

#include <stdint.h>
#include <string.h>

enum { TEMPI_PTX_ABI = 1, TEMPI_PTX_WARP = 32, TEMPI_PTX_BARRIERS = 16 };

/* Why a thread returned to the scheduler. */
enum {
    TEMPI_PTX_EXIT = 0,
    TEMPI_PTX_WAIT_BLOCK, /* a barrier */
    TEMPI_PTX_WAIT_WARP,  /* a shuffle, a vote, a warp barrier */
    TEMPI_PTX_FAULT,
};

/* Faults; the numbers are the driver's own error codes. */
enum {
    TEMPI_PTX_ILLEGAL_ADDRESS = 700,
    TEMPI_PTX_ILLEGAL_INSTRUCTION = 715,
    TEMPI_PTX_MISALIGNED = 716,
    TEMPI_PTX_LAUNCH_FAILED = 719,
};

/* Generic addresses of shared and local memory; outside the user addresses of any supported
 * machine. */
#define TEMPI_PTX_SHARED_WINDOW 0x00f0000000000000ull
#define TEMPI_PTX_LOCAL_WINDOW  0x00f1000000000000ull
#define TEMPI_PTX_WINDOW_MASK   0xffff000000000000ull

/* An allocation: device addresses base .. base + size, and the emulator's mapping of its bytes. */
typedef struct tempi_ptx_span {
    uint64_t base;
    uint64_t size;
    uint8_t *bytes;
} tempi_ptx_span;

typedef struct tempi_ptx_block {
    const uint8_t *param;
    uint8_t *shared;
    uint64_t variables; /* device address of the module's .global and .const variables */
    uint32_t shared_size;
    uint32_t shared_static;
    uint32_t param_size;
    uint32_t local_size;
    uint32_t ntid[3];
    uint32_t nctaid[3];
    uint32_t ctaid[3];
    tempi_ptx_span *spans; /* one for each access to global memory in the kernel's text */
    int (*find)(struct tempi_ptx_block *block, uint64_t address, tempi_ptx_span *span);
    void *owner; /* the emulator's */
    uint64_t fault_address;
    uint32_t fault_line; /* of the PTX text */
    int fault;
} tempi_ptx_block;

typedef struct tempi_ptx_thread {
    uint32_t tid[3];
    uint32_t lane;
    uint32_t warp;
    uint32_t pc;
    uint32_t wait_id;    /* barrier number */
    uint32_t wait_count; /* threads to wait for, 0 for all */
    uint32_t aligned;    /* its warp must wait at the same instruction */
    uint32_t wait_mask;  /* lanes to wait for */
    uint32_t met_mask;   /* lanes that have met: those of the mask that had not exited */
    uint32_t wait_line;
    uint64_t given;        /* the value that this lane publishes to its warp */
    const uint64_t *shown; /* the value that each lane of the warp has published */
    uint8_t *local;
} tempi_ptx_thread;

typedef int (*tempi_ptx_run)(tempi_ptx_block *block, tempi_ptx_thread *thread, void *registers);

typedef struct tempi_ptx_kernel {
    const char *name;
    tempi_ptx_run run;
    uint32_t registers; /* bytes of a waiting thread's registers; 0: it never waits */
    uint32_t params;
    const uint32_t *param_offsets;
    const uint32_t *param_sizes;
    uint32_t param_size;
    uint32_t shared_size;
    uint32_t local_size;
    uint32_t sites;
    uint32_t max_threads; /* 0: as the device allows */
} tempi_ptx_kernel;

typedef struct tempi_ptx_variable {
    const char *name;
    uint64_t offset;
    uint64_t size;
    const uint8_t *values; /* its first bytes; the others are zero */
    uint64_t given;
} tempi_ptx_variable;

typedef struct tempi_ptx_module {
    uint32_t abi;
    uint32_t isa;    /* 80 for .version 8.0 */
    uint32_t target; /* 70 for sm_70 */
    uint32_t kernels;
    uint32_t variables;
    uint64_t hash;   /* FNV-1a, 64 bits, of the text */
    uint64_t length; /* of the text in bytes */
    uint64_t variables_size;
    const tempi_ptx_kernel *kernel;
    const tempi_ptx_variable *variable;
} tempi_ptx_module;

static inline uint8_t *tempi_ptx_fault(tempi_ptx_block *b, int fault, uint64_t address,
                                       uint32_t line)
{
    b->fault = fault;
    b->fault_address = address;
    b->fault_line = line;
    return NULL;
}

/* Returns the bytes at an offset in memory of the block or the thread. */
static inline uint8_t *tempi_ptx_near(tempi_ptx_block *b, uint8_t *memory, uint64_t size,
                                      uint64_t offset, uint64_t bytes, uint32_t line)
{
    if (offset & (bytes - 1))
        return tempi_ptx_fault(b, TEMPI_PTX_MISALIGNED, offset, line);
    if (offset >= size || size - offset < bytes)
        return tempi_ptx_fault(b, TEMPI_PTX_ILLEGAL_ADDRESS, offset, line);
    return memory + offset;
}

/* Returns the bytes at a global address; `site` is the instruction's cached span. */
static inline uint8_t *tempi_ptx_global(tempi_ptx_block *b, uint32_t site, uint64_t address,
                                        uint64_t bytes, uint32_t line)
{
    tempi_ptx_span *const span = &b->spans[site];
    if (address & (bytes - 1))
        return tempi_ptx_fault(b, TEMPI_PTX_MISALIGNED, address, line);
    uint64_t offset = address - span->base;
    if (offset >= span->size || span->size - offset < bytes) {
        if (!b->find(b, address, span) || span->size - (address - span->base) < bytes) {
            span->size = 0;
            return tempi_ptx_fault(b, TEMPI_PTX_ILLEGAL_ADDRESS, address, line);
        }
        offset = address - span->base;
    }
    return span->bytes + offset;
}

static inline uint8_t *tempi_ptx_shared(tempi_ptx_block *b, uint64_t offset, uint64_t bytes,
                                        uint32_t line)
{
    return tempi_ptx_near(b, b->shared, b->shared_size, offset, bytes, line);
}

static inline uint8_t *tempi_ptx_local(tempi_ptx_block *b, tempi_ptx_thread *t, uint64_t offset,
                                       uint64_t bytes, uint32_t line)
{
    return tempi_ptx_near(b, t->local, b->local_size, offset, bytes, line);
}

static inline uint8_t *tempi_ptx_param(tempi_ptx_block *b, uint64_t offset, uint64_t bytes,
                                       uint32_t line)
{
    return tempi_ptx_near(b, (uint8_t *)(uintptr_t)b->param, b->param_size, offset, bytes, line);
}

static inline uint8_t *tempi_ptx_generic(tempi_ptx_block *b, tempi_ptx_thread *t, uint32_t site,
                                         uint64_t address, uint64_t bytes, uint32_t line)
{
    const uint64_t window = address & TEMPI_PTX_WINDOW_MASK;
    if (window == TEMPI_PTX_SHARED_WINDOW)
        return tempi_ptx_shared(b, address - window, bytes, line);
    if (window == TEMPI_PTX_LOCAL_WINDOW)
        return tempi_ptx_local(b, t, address - window, bytes, line);
    return tempi_ptx_global(b, site, address, bytes, line);
}

#endif
