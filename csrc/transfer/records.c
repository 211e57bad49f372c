#include "transfer/records.h"
#include "base/free_list.h"
#include "base/thread_cache.h"
#include "datatype/layout.h"
#include "pack/parts.h"
#include "transfer/packed_buffer.h"

#include <stdlib.h>

tempi_record_table tempi_records;

static tempi_free_list spare;

static void spare_put(void *object)
{
    (void)tempi_free_list_give(&spare, object, TEMPI_FREE_LIST_ANY);
}

tempi_record *tempi_record_new(void)
{
    tempi_record *record = tempi_cached_take(TEMPI_CACHED_RECORDS);
    if (!record)
        record = tempi_free_list_take(&spare);
    if (!record && !(record = malloc(sizeof *record)))
        return NULL;
    /* Set one by one: the compiler clears a whole record with a string instruction, which takes 10
     * ns. */
    record->ops = NULL;
    record->receives = record->active = record->settled = record->cancelled = record->ended =
        record->gapped = false;
    record->posted = false;
    record->op.layout = NULL;
    record->op.packed = NULL;
    record->op.parts = NULL;
    record->pin = -1;
    record->typemap = NULL;
    record->bounce = NULL;
    record->choice = NULL;
    record->posted_list = NULL;
    record->receive = NULL;
    record->delivered = false;
    record->error = 0;
    record->error_reported = false;
    record->next = record->next_claimed = NULL;
    record->ticket = (tempi_ticket){NULL, NULL, TEMPI_OK};
    return record;
}

void tempi_record_free(tempi_record *record)
{
    tempi_packed_put(&record->op);
    tempi_parts_free(record->op.parts);
    if (record->op.layout)
        tempi_layout_release(record->op.layout);
    if (!tempi_cached_give(TEMPI_CACHED_RECORDS, record, spare_put))
        spare_put(record);
}

static void place(tempi_record_slot entry)
{
    uintptr_t i = tempi_records_home(entry.request);
    while (tempi_records.slots[i].request != 0)
        i = (i + 1) & tempi_records.mask;
    tempi_records.slots[i] = entry;
}

static bool resize(unsigned log2_capacity)
{
    const uintptr_t capacity = (uintptr_t)1 << log2_capacity;
    tempi_record_slot *slots = calloc(capacity, sizeof *slots);
    if (!slots)
        return false;
    tempi_record_slot *old = tempi_records.slots;
    const uintptr_t old_capacity = old ? tempi_records.mask + 1 : 0;
    tempi_records.slots = slots;
    tempi_records.mask = capacity - 1;
    tempi_records.shift = 64 - log2_capacity;
    for (uintptr_t i = 0; i < old_capacity; ++i)
        if (old[i].request != 0)
            place(old[i]);
    free(old);
    return true;
}

/* Caller holds the lock. */
static void count(int64_t more)
{
    __atomic_store_n(&tempi_completing->records, tempi_completing->records + more,
                     __ATOMIC_RELAXED);
}

/* Caller holds the lock. */
static bool make_room(void)
{
    if (!tempi_records.slots)
        return resize(8);
    const uintptr_t capacity = tempi_records.mask + 1;
    if ((uintptr_t)(tempi_completing->records + 1) * 4 <= capacity)
        return true;
    return resize(64 - tempi_records.shift + 1);
}

bool tempi_records_reserve(void)
{
    tempi_lock_acquire(&tempi_records.lock);
    const bool room = make_room();
    tempi_lock_release(&tempi_records.lock);
    return room;
}

bool tempi_records_put(tempi_record *record)
{
    tempi_lock_acquire(&tempi_records.lock);
    const bool room = make_room();
    if (room) {
        place((tempi_record_slot){record->request, record});
        count(1);
    }
    tempi_lock_release(&tempi_records.lock);
    return room;
}

void tempi_records_remove(tempi_record_slot *slot)
{
    /* Backward-shift deletion: move up every entry that the gap would make unreachable. */
    uintptr_t gap = (uintptr_t)(slot - tempi_records.slots);
    for (uintptr_t i = gap;;) {
        i = (i + 1) & tempi_records.mask;
        const tempi_record_slot moved = tempi_records.slots[i];
        if (moved.request == 0)
            break;
        const uintptr_t home = tempi_records_home(moved.request);
        if (((i - home) & tempi_records.mask) >= ((i - gap) & tempi_records.mask)) {
            tempi_records.slots[gap] = moved;
            gap = i;
        }
    }
    tempi_records.slots[gap] = (tempi_record_slot){0, NULL};
    count(-1);
}

tempi_record *tempi_records_claim(uintptr_t request)
{
    tempi_record *record = NULL;
    tempi_lock_acquire(&tempi_records.lock);
    tempi_record_slot *slot = tempi_records_find(request);
    if (slot) {
        record = slot->record;
        tempi_records_remove(slot);
    }
    tempi_lock_release(&tempi_records.lock);
    return record;
}
