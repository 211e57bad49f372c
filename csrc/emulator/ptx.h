/* ptx.h: what a translated PTX module and the emulated device know of each other.
 *
 * A kernel is a function that runs one thread until it exits, faults or must wait for others. A kernel
 * that waits keeps its registers in a struct of its own, and goes on where `pc` says when it is called
 * again. Memory is reached through a check of every address; each instruction that accesses global
 * memory remembers the allocation that it found last.
 *
 * This header stands alone: translated modules are compiled against it and nothing else of tempi.
 */
#ifndef TEMPI_EMULATOR_PTX_H
#define TEMPI_EMULATOR_PTX_H

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { TEMPI_PTX_ABI = 1, TEMPI_PTX_WARP = 32, TEMPI_PTX_BARRIERS = 16 };

/* Why a thread came back to the scheduler. */
enum {
    TEMPI_PTX_EXIT = 0,
    TEMPI_PTX_WAIT_BLOCK, /* a barrier */
    TEMPI_PTX_WAIT_WARP,  /* a shuffle, a vote, a warp barrier */
    TEMPI_PTX_FAULT,
};

/* What went wrong; the numbers are the driver's own error codes. */
enum {
    TEMPI_PTX_ILLEGAL_ADDRESS = 700,
    TEMPI_PTX_ILLEGAL_INSTRUCTION = 715,
    TEMPI_PTX_MISALIGNED = 716,
    TEMPI_PTX_LAUNCH_FAILED = 719,
};

/* Generic addresses of shared and local memory; no user address on any supported machine looks so. */
#define TEMPI_PTX_SHARED_WINDOW 0x00f0000000000000ull
#define TEMPI_PTX_LOCAL_WINDOW 0x00f1000000000000ull
#define TEMPI_PTX_WINDOW_MASK 0xffff000000000000ull

/* An allocation: device addresses base .. base + size, and where its bytes are for the emulator. */
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
    uint32_t wait_id;    /* which barrier */
    uint32_t wait_count; /* threads that it waits for, 0 for all */
    uint32_t wait_mask;  /* lanes that it waits for */
    uint32_t met_mask;   /* lanes that have met: those of the mask that had not exited */
    uint32_t wait_line;
    uint64_t given;        /* what this lane shows the others of its warp */
    const uint64_t *shown; /* what each lane of the warp has shown */
    uint8_t *local;
} tempi_ptx_thread;

typedef int (*tempi_ptx_run)(tempi_ptx_block *block, tempi_ptx_thread *thread, void *registers);

typedef struct tempi_ptx_kernel {
    const char *name;
    tempi_ptx_run run;
    uint32_t registers; /* bytes that one thread keeps while it waits; 0: it never waits */
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
    const uint8_t *values; /* the first of its bytes; the others are zero */
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

/* The bytes at an offset of a memory that belongs to the block or the thread. */
static inline uint8_t *tempi_ptx_near(tempi_ptx_block *b, uint8_t *memory, uint64_t size,
                                      uint64_t offset, uint64_t bytes, uint32_t line)
{
    if (offset & (bytes - 1))
        return tempi_ptx_fault(b, TEMPI_PTX_MISALIGNED, offset, line);
    if (offset >= size || size - offset < bytes)
        return tempi_ptx_fault(b, TEMPI_PTX_ILLEGAL_ADDRESS, offset, line);
    return memory + offset;
}

/* The bytes at a global address; `site` is the instruction's own span. */
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

/* ---- bits and numbers ------------------------------------------------------------------------ */

static inline float tempi_ptx_f32(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline double tempi_ptx_f64(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t tempi_ptx_b32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline uint64_t tempi_ptx_b64(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* A float that was rounded to a whole number, clamped to the range; `nan` for what is no number. */
static inline uint32_t tempi_ptx_to_u32(double value, uint32_t nan)
{
    if (isnan(value))
        return nan;
    return value <= 0 ? 0 : value >= 0x1p32 ? UINT32_MAX : (uint32_t)value;
}

static inline uint64_t tempi_ptx_to_u64(double value, uint64_t nan)
{
    if (isnan(value))
        return nan;
    return value <= 0 ? 0 : value >= 0x1p64 ? UINT64_MAX : (uint64_t)value;
}

static inline int32_t tempi_ptx_to_s32(double value, uint32_t nan)
{
    if (isnan(value))
        return (int32_t)nan;
    return value <= -0x1p31 ? INT32_MIN : value >= 0x1p31 ? INT32_MAX : (int32_t)value;
}

static inline int64_t tempi_ptx_to_s64(double value, uint64_t nan)
{
    if (isnan(value))
        return (int64_t)nan;
    return value <= -0x1p63 ? INT64_MIN : value >= 0x1p63 ? INT64_MAX : (int64_t)value;
}

static inline uint64_t tempi_ptx_mulhi_u64(uint64_t a, uint64_t b)
{
    return (uint64_t)(((unsigned __int128)a * b) >> 64);
}

static inline uint64_t tempi_ptx_mulhi_s64(int64_t a, int64_t b)
{
    return (uint64_t)(int64_t)(((__int128)a * b) >> 64);
}

/* Division by zero has an unspecified result; the hardware's is all ones. */
static inline uint64_t tempi_ptx_div_u(uint64_t a, uint64_t b)
{
    return b ? a / b : UINT64_MAX;
}

static inline int64_t tempi_ptx_div_s(int64_t a, int64_t b)
{
    if (b == 0)
        return -1;
    return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

static inline uint64_t tempi_ptx_rem_u(uint64_t a, uint64_t b)
{
    return b ? a % b : a;
}

static inline int64_t tempi_ptx_rem_s(int64_t a, int64_t b)
{
    if (b == 0)
        return a;
    return b == -1 ? 0 : a % b;
}

/* Shifts clamp at the width of the type. */
static inline uint64_t tempi_ptx_shl(uint64_t a, uint32_t by, uint32_t width)
{
    return by < width ? a << by : 0;
}

static inline uint64_t tempi_ptx_shr_u(uint64_t a, uint32_t by, uint32_t width)
{
    return by < width ? a >> by : 0;
}

static inline int64_t tempi_ptx_shr_s(int64_t a, uint32_t by, uint32_t width)
{
    return a >> (by < width ? by : width - 1);
}

/* The funnel shifts see the two words as one of 64 bits. */
static inline uint32_t tempi_ptx_shf_l(uint32_t low, uint32_t high, uint32_t by)
{
    const uint64_t both = (uint64_t)high << 32 | low;
    return by >= 32 ? low : (uint32_t)((both << by) >> 32);
}

static inline uint32_t tempi_ptx_shf_r(uint32_t low, uint32_t high, uint32_t by)
{
    const uint64_t both = (uint64_t)high << 32 | low;
    return by >= 32 ? high : (uint32_t)(both >> by);
}

static inline uint32_t tempi_ptx_prmt(uint32_t a, uint32_t b, uint32_t selection)
{
    const uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t result = 0;
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t select = selection >> (4 * i) & 15;
        uint32_t byte = (uint32_t)(bytes >> (8 * (select & 7))) & 255;
        if (select & 8)
            byte = byte & 128 ? 255 : 0;
        result |= byte << (8 * i);
    }
    return result;
}

static inline uint32_t tempi_ptx_lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table)
{
    uint32_t result = 0;
    for (uint32_t i = 0; i < 8; i++)
        if (table >> i & 1)
            result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return result;
}

static inline uint64_t tempi_ptx_bfe(uint64_t a, uint32_t at, uint32_t length, uint32_t width,
                                     int is_signed)
{
    at &= 255;
    length &= 255;
    const uint32_t msb = width - 1;
    uint64_t sign = 0;
    if (is_signed && length != 0) {
        const uint32_t top = at + length - 1 < msb ? at + length - 1 : msb;
        sign = a >> top & 1;
    }
    uint64_t result = sign ? UINT64_MAX : 0;
    for (uint32_t i = 0; i < length && i <= msb && at + i <= msb; i++) {
        result &= ~(1ull << i);
        result |= (a >> (at + i) & 1) << i;
    }
    return result;
}

static inline uint64_t tempi_ptx_bfi(uint64_t a, uint64_t b, uint32_t at, uint32_t length,
                                     uint32_t width)
{
    at &= 255;
    length &= 255;
    for (uint32_t i = 0; i < length && at + i < width; i++) {
        b &= ~(1ull << (at + i));
        b |= (a >> i & 1) << (at + i);
    }
    return b;
}

static inline uint64_t tempi_ptx_brev(uint64_t a, uint32_t width)
{
    uint64_t result = 0;
    for (uint32_t i = 0; i < width; i++)
        result |= (a >> i & 1) << (width - 1 - i);
    return result;
}

static inline uint32_t tempi_ptx_clz(uint64_t a, uint32_t width)
{
    return a ? (uint32_t)__builtin_clzll(a) - (64 - width) : width;
}

/* The highest bit that is set; for signed types the highest that differs from the sign. */
static inline uint32_t tempi_ptx_bfind(uint64_t a, uint32_t width, int shift_amount)
{
    if (a == 0)
        return UINT32_MAX;
    const uint32_t leading = tempi_ptx_clz(a, width);
    return shift_amount ? leading : width - 1 - leading;
}

/* ---- lanes of a warp --------------------------------------------------------------------------- */

enum { TEMPI_PTX_UP, TEMPI_PTX_DOWN, TEMPI_PTX_BFLY, TEMPI_PTX_IDX };

/* The lane that a shuffle reads; *inside says whether it lies within the segment. */
static inline uint32_t tempi_ptx_lane(const tempi_ptx_thread *t, int mode, uint32_t b, uint32_t c,
                                      uint8_t *inside)
{
    const uint32_t lane = t->lane;
    const uint32_t by = b & 31;
    const uint32_t segment = c >> 8 & 31;
    const uint32_t first = lane & segment;
    const uint32_t last = first | (c & 31 & ~segment);
    int32_t source = (int32_t)(lane + by);
    if (mode == TEMPI_PTX_UP)
        source = (int32_t)lane - (int32_t)by;
    else if (mode == TEMPI_PTX_BFLY)
        source = (int32_t)(lane ^ by);
    else if (mode == TEMPI_PTX_IDX)
        source = (int32_t)(first | (by & ~segment));
    *inside = mode == TEMPI_PTX_UP ? source >= (int32_t)last : source <= (int32_t)last;
    return *inside ? (uint32_t)source : lane;
}

/* The lanes that have met and shown something other than zero. */
static inline uint32_t tempi_ptx_ballot(const tempi_ptx_thread *t)
{
    uint32_t lanes = 0;
    for (uint32_t i = 0; i < TEMPI_PTX_WARP; i++)
        if ((t->met_mask >> i & 1) && t->shown[i])
            lanes |= 1u << i;
    return lanes;
}

#endif
