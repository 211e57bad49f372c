/* datatype/offset_table.c: tables of irregular dimensions, shared and reference-counted. */
#include "base/allocate.h"
#include "datatype/layout.h"
#include <stdlib.h>
#include <string.h>

tempi_shared_table *tempi_table_new(int64_t n)
{
    const int64_t most = (INT64_MAX - (int64_t)sizeof(tempi_shared_table)) /
                         (int64_t)sizeof(tempi_entry);
    if (n < 1 || n >= most)
        return NULL;
    const size_t entries = (size_t)n + 1;
    tempi_shared_table *table = tempi_allocate(sizeof *table + entries * sizeof(tempi_entry));
    if (!table)
        return NULL;
    table->pub.n = n;
    table->pub.entries = table->entries;
    atomic_init(&table->refs, 1);
    table->lo = table->hi = 0;
    atomic_init(&table->settled, false);
    return table;
}

tempi_shared_table *tempi_table_shrink(tempi_shared_table *table, int64_t n)
{
    const size_t bytes = ((size_t)n + 1) * sizeof(tempi_entry);
    tempi_shared_table *smaller = realloc(table, sizeof *table + bytes);
    table = smaller ? smaller : table;
    table->pub.n = n;
    table->pub.entries = table->entries;
    return table;
}

tempi_entry tempi_table_seal(tempi_shared_table *table, bool variable)
{
    tempi_entry *entries = table->entries;
    const tempi_entry first = entries[0];
    const int64_t n = table->pub.n;
    int64_t lo = 0, hi = 0;
    for (int64_t i = 0; i < n; i++) {
        entries[i].offset -= first.offset;
        entries[i].packed -= first.packed;
        lo = entries[i].offset < lo ? entries[i].offset : lo;
        hi = entries[i].offset > hi ? entries[i].offset : hi;
    }
    entries[n].offset = 0;
    if (variable) {
        entries[n].packed -= first.packed;
        for (int64_t i = 0; i < n; i++) {
            const int64_t end = entries[i].offset + (entries[i + 1].packed - entries[i].packed);
            hi = end > hi ? end : hi;
        }
    } else {
        const int64_t step = n > 1 ? entries[1].packed : 0;
        (void)tempi_add64(entries[n - 1].packed, step, &entries[n].packed);
    }
    table->lo = lo;
    table->hi = hi;
    return first;
}

void tempi_table_retain(const tempi_table *table)
{
    tempi_shared_table *shared = (tempi_shared_table *)(void *)(uintptr_t)table;
    if (shared)
        atomic_fetch_add_explicit(&shared->refs, 1, memory_order_relaxed);
}

void tempi_table_release(const tempi_table *table)
{
    tempi_shared_table *shared = (tempi_shared_table *)(void *)(uintptr_t)table;
    if (shared && atomic_fetch_sub_explicit(&shared->refs, 1, memory_order_acq_rel) == 1)
        free(shared);
}

void tempi_table_settle(const tempi_table *table)
{
    tempi_shared_table *shared = (tempi_shared_table *)(void *)(uintptr_t)table;
    atomic_store_explicit(&shared->settled, true, memory_order_relaxed);
}

bool tempi_table_equal(const tempi_table *a, const tempi_table *b, bool variable)
{
    if (a == b)
        return true;
    if (!a || !b || a->n != b->n)
        return false;
    const size_t entries = (size_t)a->n + (variable ? 1 : 0);
    return memcmp(a->entries, b->entries, entries * sizeof(tempi_entry)) == 0;
}
