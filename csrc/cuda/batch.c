#include "cuda/batch.h"
#include "base/stats.h"
#include "cuda/completion.h"
#include "cuda/pageable.h"
#include "cuda/pool.h"
#include "cuda/resident.h"

#include <sched.h>
#include <stdlib.h>

/* ---- life ------------------------------------------------------------------------------------ */

tempi_cuda_batch *tempi_cuda_batch_new(tempi_cuda_device *device, int direction)
{
    tempi_cuda_batch *batch = calloc(1, sizeof *batch);
    if (!batch)
        return NULL;
    batch->device = device;
    batch->direction = direction;
    batch->refs = 1;
    batch->stream = device->streams[direction];
    batch->flag = TEMPI_CUDA_NO_FLAG;
    batch->resident = -1;
    batch->copied_rows = -1;
    batch->over_bus = true;
    return batch;
}

tempi_cuda_batch *tempi_cuda_batch_retain(tempi_cuda_batch *batch)
{
    atomic_fetch_add_explicit(&batch->refs, 1, memory_order_relaxed);
    return batch;
}

void tempi_cuda_batch_release(tempi_cuda_batch *batch)
{
    if (!batch || atomic_fetch_sub_explicit(&batch->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (batch->event)
        tempi_cuda_event_put(batch->device, batch->event);
    tempi_cuda_plan_free(&batch->plan);
    free(batch->items);
    free(batch->buffers);
    free(batch);
}

/* ---- gathering ------------------------------------------------------------------------------- */

/* Reserves room for `more` elements of `size` bytes after the first n. */
static bool grow(void **array, int n, int *room, int more, size_t size)
{
    if (*room - n >= more)
        return true;
    const int wanted = n + more > 2 * *room ? n + more : 2 * *room;
    void *larger = realloc(*array, (size_t)wanted * size);
    if (!larger)
        return false;
    *array = larger;
    *room = wanted;
    return true;
}

static bool reserve_buffers(tempi_cuda_batch *batch, int more)
{
    void *array = batch->buffers;
    const bool good = grow(&array, batch->nbuffers, &batch->buffers_room, more,
                           sizeof *batch->buffers);
    batch->buffers = array;
    return good;
}

bool tempi_cuda_batch_reserve(tempi_cuda_batch *batch, int items)
{
    void *array = batch->items;
    const bool good = grow(&array, batch->nitems, &batch->items_room, items, sizeof *batch->items);
    batch->items = array;
    return good && reserve_buffers(batch, items);
}

void tempi_cuda_batch_add(tempi_cuda_batch *batch, const tempi_cuda_item *item)
{
    batch->items[batch->nitems++] = *item;
    batch->over_bus &= item->op.method == TEMPI_METHOD_ONE_SHOT && !item->op.into;
    batch->has_pageable |= item->pageable;
    if (item->buffer)
        batch->buffers[batch->nbuffers++] = item->buffer;
}

/* The caller has reserved room. */
static void *keep_buffer(tempi_cuda_batch *batch, void *buffer)
{
    if (buffer)
        batch->buffers[batch->nbuffers++] = buffer;
    return buffer;
}

void *tempi_cuda_batch_buffer(tempi_cuda_batch *batch, int64_t bytes)
{
    return reserve_buffers(batch, 1)
               ? keep_buffer(batch, tempi_cuda_buffer_get(batch->device->slot, bytes))
               : NULL;
}

void *tempi_cuda_batch_pinned(tempi_cuda_batch *batch, int64_t bytes)
{
    return reserve_buffers(batch, 1)
               ? keep_buffer(batch, tempi_cuda_pinned_some(batch->device->slot, bytes))
               : NULL;
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void state_set(tempi_cuda_batch *batch, int state)
{
    atomic_store_explicit(&batch->state, state, memory_order_release);
}

void tempi_cuda_batch_unflag(tempi_cuda_batch *batch)
{
    if (batch->flag != TEMPI_CUDA_NO_FLAG)
        tempi_cuda_flag_put(batch->device, batch->flag);
    batch->flag = TEMPI_CUDA_NO_FLAG;
}

/* Ends the batch. The caller owns it: it is LAUNCHING, or the caller made it ENDING. */
static void end(tempi_cuda_batch *batch, int status)
{
    batch->status = status;
    if (batch->resident >= 0)
        tempi_cuda_resident_release(batch->device, batch->direction, batch->resident,
                                    status == TEMPI_OK);
    if (batch->flag != TEMPI_CUDA_NO_FLAG)
        tempi_cuda_flag_put(batch->device, batch->flag);
    tempi_cuda_pageable_end(batch);
    for (int i = 0; i < batch->nbuffers; ++i)
        (void)tempi_cuda_pool_put(batch->buffers[i]);
    batch->nbuffers = 0;
    state_set(batch, TEMPI_BATCH_DONE);
}

static void land(tempi_cuda_batch *batch, int status)
{
    int flying = TEMPI_BATCH_FLYING;
    if (atomic_compare_exchange_strong(&batch->state, &flying, TEMPI_BATCH_ENDING))
        end(batch, status);
}

/* After a failed call: work in the streams still uses the buffers, so wait for it. TEMPI_OK: all
 * enqueued work completed successfully. */
static int drain(tempi_cuda_batch *batch)
{
    tempi_cuda_entry entry;
    if (!tempi_cuda_up())
        return TEMPI_ERR_DEVICE;
    const int entered = tempi_cuda_enter_relaxed(batch->device, &entry);
    if (entered != TEMPI_OK)
        return entered;
    const int first = TEMPI_CU(StreamSynchronize, batch->device->copy_streams[batch->direction]);
    const int second = TEMPI_CU(StreamSynchronize, batch->stream);
    tempi_cuda_leave(&entry);
    return first != TEMPI_OK ? first : second;
}

/* The result of a flying batch if its flag or event gave none. */
static int ask_streams(tempi_cuda_batch *batch, int status)
{
    return status == TEMPI_OK ? TEMPI_OK : drain(batch);
}

static int record_event(tempi_cuda_batch *batch)
{
    const int status = tempi_cuda_event_get(batch->device, &batch->event);
    return status == TEMPI_OK ? TEMPI_CU(EventRecord, batch->event, batch->stream) : status;
}

void tempi_cuda_batch_fly(tempi_cuda_batch *batch, int status)
{
    if (status != TEMPI_OK) {
        (void)drain(batch);
        end(batch, status);
        return;
    }
    if (batch->has_pageable) { /* its last piece comes after all of it */
        state_set(batch, TEMPI_BATCH_FLYING);
        return;
    }
    if (batch->flag == TEMPI_CUDA_NO_FLAG && !batch->in_program_order)
        batch->flag = tempi_cuda_flag_raise(batch->device, batch->stream);
    if (batch->flag != TEMPI_CUDA_NO_FLAG || record_event(batch) == TEMPI_OK)
        state_set(batch, TEMPI_BATCH_FLYING);
    else
        end(batch, drain(batch)); /* with neither: wait for it here */
}

/* `own`: not in a stream of the program. */
static int try_launch(tempi_cuda_batch *batch, bool own)
{
    tempi_cuda_batch_unflag(batch);
    batch->flag_wanted =
        !batch->in_program_order; /* then nobody waits, and the stream may be gone */
    /* Pieces are put into it later, when a stream of the program may be gone. */
    const int status = tempi_cuda_batch_choose_stream(batch, own || batch->has_pageable);
    return status == TEMPI_OK ? tempi_cuda_batch_enqueue(batch) : status;
}

/* Packing or unpacking the same bytes again is harmless: a failed launch is retried once, unless
 * the device is lost. The program's stream may be another device's, where no kernel of this one can
 * be launched. */
static int launch_twice(tempi_cuda_batch *batch)
{
    const int status = try_launch(batch, false);
    if (status == TEMPI_OK || !tempi_cuda_up())
        return status;
    tempi_stat_add(TEMPI_STAT_cuda_repeated, 1);
    (void)drain(batch);
    return try_launch(batch, true);
}

void tempi_cuda_batch_launch(tempi_cuda_batch *batch)
{
    tempi_cuda_entry entry;
    int status = tempi_cuda_enter(batch->device, &entry);
    if (status == TEMPI_OK) {
        status = atomic_exchange(&batch->device->join_status, TEMPI_OK);
        if (status == TEMPI_OK)
            status = tempi_cuda_join_waiting(batch->device);
        if (status == TEMPI_OK)
            status = launch_twice(batch);
        tempi_cuda_batch_fly(batch, status);
        tempi_cuda_leave(&entry);
    } else {
        end(batch, status);
    }
}

/* Queries the batch's event, or its stream. The driver requires a current context, and the thread
 * may have none; in a context that the program has destroyed neither exists any longer. */
static int ask_driver(tempi_cuda_batch *batch, bool *ready)
{
    tempi_cuda_entry entry;
    const int status = tempi_cuda_enter_relaxed(batch->device, &entry);
    if (status != TEMPI_OK)
        return status;
    const int result = batch->event ? tempi_cu.EventQuery(batch->event)
                                    : tempi_cu.StreamQuery(batch->stream);
    tempi_cuda_leave(&entry);
    *ready = result != TEMPI_CUDA_NOT_READY;
    return *ready ? tempi_cuda_check(result, batch->event ? "cuEventQuery" : "cuStreamQuery")
                  : TEMPI_OK;
}

/* A kernel that failed never gets to the flag, so the stream is queried now and then: this is also
 * a sign of life for drivers that need one. */
enum { POLLS_A_QUERY = 64 };

static bool flag_says_wait(tempi_cuda_batch *batch)
{
    return batch->flag != TEMPI_CUDA_NO_FLAG &&
           !tempi_cuda_flag_is_up(batch->device, batch->flag) &&
           __atomic_add_fetch(&batch->polls, 1, __ATOMIC_RELAXED) % POLLS_A_QUERY != 0;
}

static bool own(tempi_cuda_batch *batch)
{
    int flying = TEMPI_BATCH_FLYING;
    return atomic_compare_exchange_strong(&batch->state, &flying, TEMPI_BATCH_COPYING);
}

static int poll_pageable(tempi_cuda_batch *batch)
{
    bool done = false;
    if (!own(batch))
        return 0;
    int status = tempi_cuda_pageable_advance(batch, &done);
    if (status != TEMPI_OK)
        (void)drain(batch);
    if (done || status != TEMPI_OK)
        end(batch, status);
    else
        state_set(batch, TEMPI_BATCH_FLYING);
    return tempi_cuda_batch_state(batch) == TEMPI_BATCH_DONE;
}

int tempi_cuda_batch_poll(tempi_cuda_batch *batch)
{
    const int state = tempi_cuda_batch_state(batch);
    if (state != TEMPI_BATCH_FLYING)
        return state == TEMPI_BATCH_DONE;
    if (!tempi_cuda_up()) {
        land(batch, TEMPI_ERR_DEVICE);
        return 1;
    }
    if (batch->has_pageable)
        return poll_pageable(batch);
    if (flag_says_wait(batch))
        return 0;
    bool ready = true;
    int status = TEMPI_OK;
    if (batch->flag == TEMPI_CUDA_NO_FLAG || !tempi_cuda_flag_is_up(batch->device, batch->flag))
        status = ask_driver(batch, &ready);
    if (!ready)
        return 0;
    land(batch, ask_streams(batch, status));
    return tempi_cuda_batch_state(batch) == TEMPI_BATCH_DONE;
}

static int wait_for_event(tempi_cuda_batch *batch)
{
    tempi_cuda_entry entry;
    int status = tempi_cuda_enter_relaxed(batch->device, &entry);
    if (status != TEMPI_OK)
        return status;
    status = TEMPI_CU(EventSynchronize, batch->event);
    tempi_cuda_leave(&entry);
    return status;
}

/* Then the next poll queries. */
static void spin(tempi_cuda_batch *batch)
{
    tempi_cuda_flag_spin(batch->device, batch->flag);
    __atomic_store_n(&batch->polls, POLLS_A_QUERY - 1, __ATOMIC_RELAXED);
}

static void await_pageable(tempi_cuda_batch *batch)
{
    if (!own(batch))
        return;
    tempi_cuda_pageable_await(batch);
    state_set(batch, TEMPI_BATCH_FLYING);
}

void tempi_cuda_batch_wait(tempi_cuda_batch *batch)
{
    while (!tempi_cuda_batch_poll(batch)) {
        const bool flying = tempi_cuda_batch_state(batch) == TEMPI_BATCH_FLYING;
        if (flying && batch->has_pageable)
            await_pageable(batch);
        else if (flying && batch->flag == TEMPI_CUDA_NO_FLAG)
            land(batch, ask_streams(batch, wait_for_event(batch)));
        else if (flying)
            spin(batch);
        else
            sched_yield(); /* another thread launches or ends it */
    }
}
