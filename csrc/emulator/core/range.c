/* range.c: all memory known to the driver, sorted by address: device, pinned, managed. */
#include "emulator/core/emulator.h"

#include <stdlib.h>

static tempi_emu_range **ranges;
static size_t count;
static size_t space;
static uint64_t last_id;

uint64_t tempi_emu_id(void)
{
    return ++last_id;
}

/* The number of ranges that start at or below the address. */
static size_t upper(uint64_t address)
{
    size_t low = 0;
    size_t high = count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (ranges[middle]->base <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

tempi_emu_range *tempi_emu_range_find(uint64_t address)
{
    const size_t i = upper(address);
    if (i == 0 || address - ranges[i - 1]->base >= ranges[i - 1]->size)
        return NULL;
    return ranges[i - 1];
}

tempi_emu_range *tempi_emu_range_add(const tempi_emu_range *range)
{
    if (count == space) {
        const size_t larger = space ? 2 * space : 64;
        tempi_emu_range **const moved = realloc(ranges, larger * sizeof *ranges);
        if (moved == NULL)
            return NULL;
        ranges = moved;
        space = larger;
    }
    tempi_emu_range *const added = malloc(sizeof *added);
    if (added == NULL)
        return NULL;
    *added = *range;
    added->id = tempi_emu_id();
    if (added->block == 0)
        added->block = added->id;
    const size_t i = upper(range->base);
    memmove(&ranges[i + 1], &ranges[i], (count - i) * sizeof *ranges);
    ranges[i] = added;
    count++;
    return added;
}

void tempi_emu_range_remove(uint64_t base)
{
    const size_t i = upper(base);
    if (i == 0 || ranges[i - 1]->base != base)
        return;
    free(ranges[i - 1]);
    memmove(&ranges[i - 1], &ranges[i], (count - i) * sizeof *ranges);
    count--;
}

size_t tempi_emu_range_count(void)
{
    return count;
}

tempi_emu_range *tempi_emu_range_at(size_t index)
{
    return index < count ? ranges[index] : NULL;
}

/* Memory belongs to the context that allocated it, even on the same device. Memory without a
 * context belongs to the device; mappings and pools grant access to others themselves. */
bool tempi_emu_range_open_to(const tempi_emu_range *range, const tempi_emu_context *context)
{
    if ((range->readable & 1u << context->device) != 0)
        return true;
    if (range->kind == EMU_MAPPED)
        return false;
    if (range->context == NULL)
        return range->device == context->device || context->peers[range->device];
    if (context->green || range->context->green)
        return range->device == context->device;
    return range->context == context || context->peers[range->context - tempi_emu_contexts];
}

bool tempi_emu_range_on_device(const tempi_emu_range *range)
{
    return range != NULL && range->kind <= EMU_VARIABLES;
}
