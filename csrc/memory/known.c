/* known.c: entries keep their places, which pins refer to; `order` lists those that can be found,
 * by address, without overlaps. An entry that leaves `order` while messages use it is freed with
 * the last of them. */
#include "memory/known.h"
#include "cuda/device.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Allocations that no message uses are forgotten when there are so many entries. */
enum { MOST = 4096, NONE = -1 };

typedef struct entry {
    tempi_memory memory;
    int32_t ordinal;
    unsigned times; /* context slots are valid until all devices are shut down */
    int messages;   /* pending */
    int registered;
    bool listed;
    int next; /* free ones */
} entry;

static struct {
    pthread_mutex_t lock;
    entry *of;
    int *order;
    int room, n; /* entries; of these listed */
    int unused;  /* the first free entry */
    struct {
        int messages;
        int32_t slot;
    } no_context[TEMPI_CUDA_ORDINALS]; /* pending messages of such memory, and their context slot */
} known = {.lock = PTHREAD_MUTEX_INITIALIZER, .unused = NONE};

/* ---- entries (the caller holds the lock) ----------------------------------------------------- */

static bool grow(void)
{
    const int room = known.room ? 2 * known.room : 16;
    entry *of = realloc(known.of, (size_t)room * sizeof *of);
    if (of)
        known.of = of;
    int *order = of ? realloc(known.order, (size_t)room * sizeof *order) : NULL;
    if (!order)
        return false;
    known.order = order;
    for (int i = room - 1; i >= known.room; --i) {
        known.of[i] = (entry){.next = known.unused};
        known.unused = i;
    }
    known.room = room;
    return true;
}

static void free_unless_used(int i)
{
    entry *e = &known.of[i];
    if (e->listed || e->messages > 0)
        return;
    e->next = known.unused;
    known.unused = i;
}

/* Takes entry order[at] out. */
static void unlist(int at)
{
    const int i = known.order[at];
    --known.n;
    memmove(&known.order[at], &known.order[at + 1], (size_t)(known.n - at) * sizeof *known.order);
    known.of[i].listed = false;
    free_unless_used(i);
}

/* The number of entries that begin at or below the address. */
static int upper(uintptr_t address)
{
    int low = 0, high = known.n;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (known.of[known.order[middle]].memory.base <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_current(const entry *e)
{
    return e->times == atomic_load(&tempi_cuda_times);
}

/* The place in `order` of the allocation of the address, or NONE. */
static int find(const void *address)
{
    const int at = upper((uintptr_t)address) - 1;
    if (at < 0)
        return NONE;
    const entry *e = &known.of[known.order[at]];
    const bool covers = (uintptr_t)address - e->memory.base < (uintptr_t)e->memory.size;
    return covers && is_current(e) ? at : NONE;
}

static void forget_unused(void)
{
    for (int at = known.n - 1; at >= 0; --at) {
        const entry *e = &known.of[known.order[at]];
        if (e->messages == 0 && e->registered == 0)
            unlist(at);
    }
}

static void unlist_overlapped(const tempi_memory *memory)
{
    const uintptr_t end = memory->base + (uintptr_t)memory->size;
    for (int at = upper(end - 1) - 1; at >= 0; --at) {
        const tempi_memory *other = &known.of[known.order[at]].memory;
        if (other->base + (uintptr_t)other->size <= memory->base)
            break;
        unlist(at);
    }
}

static entry *list(const tempi_memory *memory)
{
    unlist_overlapped(memory);
    if (known.n >= MOST)
        forget_unused();
    if (known.unused == NONE && !grow())
        return NULL;
    const int i = known.unused, at = upper(memory->base);
    known.unused = known.of[i].next;
    memmove(&known.order[at + 1], &known.order[at], (size_t)(known.n - at) * sizeof *known.order);
    known.order[at] = i;
    ++known.n;
    known.of[i] = (entry){.listed = true};
    return &known.of[i];
}

/* The entry of that very allocation, if it is listed. */
static entry *same(const tempi_memory *memory)
{
    const int at = find((const void *)memory->base);
    entry *e = at >= 0 ? &known.of[known.order[at]] : NULL;
    return e && e->memory.buffer_id == memory->buffer_id ? e : NULL;
}

/* ---- for queries ----------------------------------------------------------------------------- */

/* A registration does not keep the context of memory that belongs to none. */
static bool holds(const entry *e)
{
    return e->messages > 0 || (e->registered > 0 && e->ordinal < 0);
}

bool tempi_known_find(const void *address, tempi_known *out)
{
    pthread_mutex_lock(&known.lock);
    const int at = find(address);
    if (at >= 0) {
        const entry *e = &known.of[known.order[at]];
        *out = (tempi_known){e->memory, e->ordinal, holds(e)};
    }
    pthread_mutex_unlock(&known.lock);
    return at >= 0;
}

void tempi_known_note(const tempi_memory *memory, int32_t ordinal)
{
    if (memory->base == 0 || memory->size <= 0 || memory->buffer_id == 0 ||
        ordinal >= TEMPI_CUDA_ORDINALS)
        return;
    pthread_mutex_lock(&known.lock);
    entry *e = same(memory);
    if (!e)
        e = list(memory);
    if (e) {
        e->memory = *memory;
        e->ordinal = ordinal;
        e->times = atomic_load(&tempi_cuda_times);
    }
    pthread_mutex_unlock(&known.lock);
}

void tempi_known_drop(const tempi_known *gone)
{
    pthread_mutex_lock(&known.lock);
    const int at = find((const void *)gone->memory.base);
    if (at >= 0 && known.of[known.order[at]].memory.buffer_id == gone->memory.buffer_id)
        unlist(at);
    pthread_mutex_unlock(&known.lock);
}

bool tempi_known_slot(int32_t ordinal, int32_t *slot)
{
    pthread_mutex_lock(&known.lock);
    const bool found = known.no_context[ordinal].messages > 0;
    if (found)
        *slot = known.no_context[ordinal].slot;
    pthread_mutex_unlock(&known.lock);
    return found;
}

/* ---- in use ---------------------------------------------------------------------------------- */

int tempi_memory_pin(const void *address)
{
    pthread_mutex_lock(&known.lock);
    const int at = find(address), pin = at >= 0 ? known.order[at] : NONE;
    if (pin >= 0) {
        entry *e = &known.of[pin];
        ++e->messages;
        if (e->ordinal >= 0 && known.no_context[e->ordinal].messages++ == 0)
            known.no_context[e->ordinal].slot = e->memory.device;
    }
    pthread_mutex_unlock(&known.lock);
    return pin;
}

void tempi_memory_unpin(int pin)
{
    if (pin < 0)
        return;
    pthread_mutex_lock(&known.lock);
    entry *e = &known.of[pin];
    --e->messages;
    if (e->ordinal >= 0)
        --known.no_context[e->ordinal].messages;
    free_unless_used(pin);
    pthread_mutex_unlock(&known.lock);
}

bool tempi_known_register(const void *address, int change)
{
    pthread_mutex_lock(&known.lock);
    const int at = find(address);
    entry *e = at >= 0 ? &known.of[known.order[at]] : NULL;
    const bool possible = e && e->registered + change >= 0;
    if (possible)
        e->registered += change;
    pthread_mutex_unlock(&known.lock);
    return possible;
}
