/* ptx_compute.h: PTX instructions that have no C operator, for translated modules.
 *
 * They follow the definitions in the PTX ISA; the tests compare each with a model in Python. */
#ifndef TEMPI_EMULATOR_PTX_COMPUTE_H
#define TEMPI_EMULATOR_PTX_COMPUTE_H

#include "emulator/ptx/ptx.h"

#include <math.h>

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

/* Converts a float rounded to a whole number, clamped to the range; `nan` replaces NaN. */
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

/* The funnel shifts treat the two words as one of 64 bits. */
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

/* The highest set bit; for signed types the highest that differs from the sign. */
static inline uint32_t tempi_ptx_bfind(uint64_t a, uint32_t width, int shift_amount)
{
    if (a == 0)
        return UINT32_MAX;
    const uint32_t leading = tempi_ptx_clz(a, width);
    return shift_amount ? leading : width - 1 - leading;
}

/* ---- lanes of a warp ------------------------------------------------------------------------- */

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

/* The lanes that have met and published a nonzero value. */
static inline uint32_t tempi_ptx_ballot(const tempi_ptx_thread *t)
{
    uint32_t lanes = 0;
    for (uint32_t i = 0; i < TEMPI_PTX_WARP; i++)
        if ((t->met_mask >> i & 1) && t->shown[i])
            lanes |= 1u << i;
    return lanes;
}

#endif
