#include "exchange/offer.h"
#include "base/stats.h"
#include "exchange/copy_choice.h"
#include "exchange/far_copy.h"
#include "exchange/local_copy.h"
#include "exchange/mapping.h"
#include "exchange/xpmem.h"

static bool is_mapped(tempi_nest_shape *shape, unsigned access)
{
    uint64_t from, to;
    tempi_nest_bounds(shape, &from, &to);
    return ((access & TEMPI_ACCESS_MAP) && tempi_mapped_find(from, to, &shape->memory)) ||
           ((access & TEMPI_ACCESS_ATTACH) && tempi_xpmem_find(from, to, &shape->memory));
}

static bool is_readable(const tempi_nest_shape *shape, unsigned access)
{
    return (access & TEMPI_ACCESS_READ) && shape->run * shape->runs >= TEMPI_OFFER_LEAST &&
           shape->run >= TEMPI_COPY_RUN_LEAST;
}

bool tempi_offer_could_map(const tempi_op *block, tempi_nest_shape *shape)
{
    return block->n >= TEMPI_OFFER_MAPPED_LEAST && tempi_nest_describe(block, shape);
}

void tempi_offer_describe(const tempi_op *blocks, int64_t n, unsigned access, tempi_offer *out)
{
    out->n = 0;
    out->bytes = out->runs = 0;
    out->blocks = 0;
    out->mapped = true;
    for (int64_t i = 0; i < n && i < 64 && out->n < TEMPI_OFFER_MOST; ++i) {
        tempi_nest_shape *shape = &out->shapes[out->n];
        if (!tempi_offer_could_map(&blocks[i], shape))
            continue;
        const bool mapped = is_mapped(shape, access);
        if (!mapped && !is_readable(shape, access))
            continue;
        out->mapped &= mapped;
        shape->block = (int32_t)i;
        out->runs += shape->runs;
        out->bytes += blocks[i].n;
        out->blocks |= (uint64_t)1 << i;
        ++out->n;
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool read_mapped(const tempi_nest_shape *shape, const tempi_op *block)
{
    int pin;
    tempi_nest_op from;
    const char *const memory = tempi_mapping_open(&shape->memory, &pin);
    if (!memory)
        return false;
    tempi_nest_as_op(shape, memory + (shape->first - shape->memory.first), &from);
    (void)tempi_local_copy(&from.op, block, 1);
    tempi_mapping_close(pin);
    tempi_stat_add(shape->memory.file == TEMPI_MAPPED_ATTACHED ? TEMPI_STAT_attached_bytes
                                                               : TEMPI_STAT_mapped_bytes,
                   block->n);
    return true;
}

tempi_offer_result tempi_offer_read(pid_t process, unsigned access, const tempi_nest_shape *shapes,
                                    int nshapes, const tempi_op *blocks, int64_t n)
{
    tempi_offer_result result = TEMPI_OFFER_WAS_READ;
    for (int i = 0; i < nshapes; ++i) {
        const tempi_nest_shape *shape = &shapes[i];
        tempi_nest_walk from;
        tempi_nest_begin(&from, shape);
        if (shape->block >= n || blocks[shape->block].n != shape->run * shape->runs)
            return TEMPI_OFFER_UNLIKE;
        const bool mapped = shape->memory.mark != 0;
        if (mapped && read_mapped(shape, &blocks[shape->block]))
            continue;
        if (!(access & TEMPI_ACCESS_READ) || !tempi_far_read(process, &from, &blocks[shape->block]))
            return mapped ? TEMPI_OFFER_UNMAPPABLE : TEMPI_OFFER_UNREADABLE;
        result = mapped ? TEMPI_OFFER_NOT_MAPPED : result;
    }
    return result;
}

unsigned tempi_offer_access_after(tempi_offer_result result, unsigned access)
{
    if (result == TEMPI_OFFER_UNREADABLE)
        return access & ~(unsigned)TEMPI_ACCESS_READ;
    const bool mapped = result != TEMPI_OFFER_UNMAPPABLE && result != TEMPI_OFFER_NOT_MAPPED;
    return mapped ? access : access & ~(unsigned)(TEMPI_ACCESS_MAP | TEMPI_ACCESS_ATTACH);
}

tempi_offer_result tempi_offer_read_packed(pid_t process, uint64_t address, int64_t bytes,
                                           const tempi_op *blocks, int64_t n)
{
    const tempi_nest_shape packed = {.first = address, .run = bytes, .runs = 1};
    tempi_nest_walk from;
    for (int64_t i = 0; i < n; ++i)
        bytes -= blocks[i].n;
    if (bytes != 0)
        return TEMPI_OFFER_UNLIKE;
    tempi_nest_begin(&from, &packed);
    for (int64_t i = 0; i < n; ++i)
        if (blocks[i].n > 0 && !tempi_far_read(process, &from, &blocks[i]))
            return TEMPI_OFFER_UNREADABLE;
    return TEMPI_OFFER_WAS_READ;
}
