/* stream_order.c: orders tempi's work after the work in the program's streams.
 *
 * A stream that the program named is waited for, alone. For other messages TEMPI_STREAM_ORDER
 * decides: `none`, or after the work in the legacy default stream. For the latter nothing waits and
 * no call is made: tempi's default_streams are blocking streams, whose work the driver orders after
 * earlier work in the legacy default stream (CUDA driver API, "Stream synchronization behavior").
 * The legacy stream itself is never used. Its handle stands for all blocking streams of the context
 * together: an event in it waits for all of them, and any use while one of them is captured is an
 * error that ends the capture (CUDA Programming Guide, "Stream Capture", prohibited operations). */
#include "base/config.h"
#include "base/hooks.h"
#include "cuda/backend.h"
#include "cuda/device.h"
#include "pack/pack.h"

#include <string.h>

static _Thread_local struct {
    uintptr_t stream;
    int slot;    /* context slot of the buffer's device */
    bool joined; /* tempi_cuda_join was called for it */
} named[2];      /* by direction */

void tempi_cuda_set_direction_stream(int direction, int slot, uintptr_t stream)
{
    named[direction].stream = stream;
    named[direction].slot = slot;
    named[direction].joined = false;
}

void tempi_cuda_set_joined(int direction)
{
    named[direction].joined = true;
}

bool tempi_cuda_named_is_joined(int direction)
{
    return named[direction].joined;
}

void tempi_cuda_set_stream(uintptr_t stream)
{
    tempi_cuda_set_direction_stream(TEMPI_PACK, 0, stream);
    tempi_cuda_set_direction_stream(TEMPI_UNPACK, 0, stream);
}

uintptr_t tempi_cuda_get_stream(void)
{
    return named[TEMPI_PACK].stream;
}

uintptr_t tempi_cuda_named_stream(int direction)
{
    return named[direction].stream;
}

bool tempi_cuda_is_captured(tempi_cuda_stream stream)
{
    int status = 0;
    return tempi_cu.StreamIsCapturing &&
           tempi_cu.StreamIsCapturing(stream, &status) == TEMPI_CUDA_SUCCESS && status != 0;
}

static bool is_legacy(tempi_cuda_stream stream)
{
    return stream == NULL || stream == TEMPI_CUDA_LEGACY_STREAM;
}

/* Enqueues an operation without effect. An event in a blocking stream covers the stream's own work
 * only; this makes earlier work of the legacy default stream a part of it, and makes the legacy
 * stream's later work wait. */
static int touch(const tempi_cuda_device *device, tempi_cuda_stream stream)
{
    return TEMPI_CU(MemsetD8Async, device->witness, 0, 1, stream);
}

/* The stream of tempi's that stands in for the program's legacy default stream. */
static tempi_cuda_stream stand_in(const tempi_cuda_device *device, tempi_cuda_stream stream)
{
    const bool possible = tempi_cu.MemsetD8Async && device->witness;
    return is_legacy(stream) && possible ? device->default_streams[TEMPI_PACK] : stream;
}

/* The event captures the work so far, so it can be reused at once. */
static int order_by_event(tempi_cuda_device *device, tempi_cuda_stream first,
                          const tempi_cuda_stream *then, int n)
{
    tempi_cuda_event event;
    int status = tempi_cuda_event_get(device, &event);
    if (status != TEMPI_OK)
        return status;
    status = TEMPI_CU(EventRecord, event, first);
    for (int i = 0; i < n && status == TEMPI_OK; ++i)
        status = TEMPI_CU(StreamWaitEvent, then[i], event, 0);
    tempi_cuda_event_put(device, event);
    return status;
}

/* Nothing to wait for: no work has been put into it, or all is done. */
static bool is_idle(tempi_cuda_stream stream)
{
    return tempi_cuda_is_captured(stream) ||
           (tempi_cu.StreamQuery && tempi_cu.StreamQuery(stream) == TEMPI_CUDA_SUCCESS);
}

/* An event can be recorded only in a stream of its own device, and the stream that the program set
 * may be another device's. In that case, and for any other failure of the event, block here. */
int tempi_cuda_order_streams(tempi_cuda_device *device, tempi_cuda_stream first,
                             tempi_cuda_stream then)
{
    const tempi_cuda_stream from = stand_in(device, first), to = stand_in(device, then);
    int status = TEMPI_OK;
    if (from != first)
        status = touch(device, from);
    else if (is_idle(first))
        return TEMPI_OK;
    if (status == TEMPI_OK && from != to)
        status = order_by_event(device, from, &to, 1);
    if (status == TEMPI_OK && to != then)
        status = touch(device, to);
    if (status == TEMPI_OK || !tempi_cuda_up())
        return status;
    return TEMPI_CU(StreamSynchronize, from);
}

static void note_joined(tempi_cuda_device *device, uintptr_t stream)
{
    uintptr_t none = 0;
    if (!atomic_compare_exchange_strong(&device->joined, &none, stream) && none != stream)
        atomic_store(&device->joined, TEMPI_CUDA_SEVERAL);
}

static int join_now(tempi_cuda_device *device, tempi_cuda_stream first)
{
    const tempi_cuda_stream all[] = {device->streams[0],         device->streams[1],
                                     device->default_streams[0], device->default_streams[1],
                                     device->copy_streams[0],    device->copy_streams[1]};
    note_joined(device, (uintptr_t)first);
    if (is_idle(first) || order_by_event(device, first, all, 6) == TEMPI_OK)
        return TEMPI_OK;
    return tempi_cuda_up() ? TEMPI_CU(StreamSynchronize, first) : TEMPI_ERR_DEVICE;
}

/* While there are joins, the next call that may end a burst flushes. */
static void count_joins(tempi_cuda_device *device, int more)
{
    const int before = atomic_fetch_add(&device->njoins, more);
    if (tempi_shim_hooks.pending_add && (before > 0) != (before + more > 0))
        tempi_shim_hooks.pending_add(more > 0 ? 1 : -1);
}

void tempi_cuda_join_forget(tempi_cuda_device *device)
{
    pthread_mutex_lock(&device->lock);
    const int n = device->nlisted;
    device->nlisted = 0;
    pthread_mutex_unlock(&device->lock);
    count_joins(device, -n);
}

/* Notes a stream for later; false: there are too many. */
static bool note_join(tempi_cuda_device *device, uintptr_t stream)
{
    pthread_mutex_lock(&device->lock);
    const int n = device->nlisted;
    int i = 0;
    while (i < n && device->joins[i] != stream)
        ++i;
    if (i == n && n < TEMPI_CUDA_JOINS) {
        device->joins[device->nlisted++] = stream;
        count_joins(device, 1);
    }
    pthread_mutex_unlock(&device->lock);
    return i < TEMPI_CUDA_JOINS;
}

static int take_listed(tempi_cuda_device *device, uintptr_t streams[TEMPI_CUDA_JOINS])
{
    pthread_mutex_lock(&device->lock);
    const int n = device->nlisted;
    memcpy(streams, device->joins, (size_t)n * sizeof *streams);
    device->nlisted = 0;
    pthread_mutex_unlock(&device->lock);
    return n;
}

/* Another thread that launches meanwhile waits until the joins are enqueued. */
int tempi_cuda_join_waiting(tempi_cuda_device *device)
{
    uintptr_t streams[TEMPI_CUDA_JOINS];
    int status = TEMPI_OK;
    if (atomic_load(&device->njoins) == 0)
        return TEMPI_OK;
    pthread_mutex_lock(&device->joining);
    const int n = take_listed(device, streams);
    for (int i = 0; i < n; ++i) {
        const int joined = join_now(device, (tempi_cuda_stream)streams[i]);
        status = status == TEMPI_OK ? joined : status;
    }
    count_joins(device, -n);
    pthread_mutex_unlock(&device->joining);
    return status;
}

/* The calling thread's default stream means another one to other threads. */
int tempi_cuda_join(tempi_cuda_device *device, uintptr_t stream)
{
    tempi_cuda_entry entry;
    if (stream != (uintptr_t)TEMPI_CUDA_THREAD_STREAM && note_join(device, stream)) {
        atomic_store(&tempi_cuda_bursting, true); /* the next other call flushes */
        return TEMPI_OK;
    }
    int status = tempi_cuda_enter(device, &entry);
    if (status != TEMPI_OK)
        return status;
    status = join_now(device, (tempi_cuda_stream)stream);
    tempi_cuda_leave(&entry);
    return status;
}

bool tempi_cuda_is_default(tempi_cuda_device *device, int direction, uintptr_t theirs,
                           tempi_cuda_stream *out)
{
    if (theirs != 0 && theirs != (uintptr_t)TEMPI_CUDA_LEGACY_STREAM)
        return false;
    const bool legacy = theirs != 0 || tempi_config.stream_order == TEMPI_STREAM_ORDER_LEGACY;
    *out = legacy ? device->default_streams[direction] : device->streams[direction];
    return true;
}

int tempi_cuda_stream_after(tempi_cuda_device *device, int direction, uintptr_t theirs,
                            tempi_cuda_stream *out)
{
    const uintptr_t own = named[direction].stream, after = own ? own : theirs;
    if (tempi_cuda_is_default(device, direction, after, out))
        return TEMPI_OK;
    *out = device->streams[direction];
    return tempi_cuda_order_streams(device, (tempi_cuda_stream)after, *out);
}

int tempi_cuda_order_default(tempi_cuda_device *device, tempi_cuda_stream stream)
{
    const bool waits = named[TEMPI_PACK].stream == 0 && named[TEMPI_UNPACK].stream == 0 &&
                       tempi_config.stream_order == TEMPI_STREAM_ORDER_LEGACY;
    return waits ? tempi_cuda_order_streams(device, TEMPI_CUDA_LEGACY_STREAM, stream) : TEMPI_OK;
}

static int wait_entered(tempi_cuda_device *device, tempi_cuda_stream stream)
{
    const tempi_cuda_stream of = stand_in(device, stream);
    const int status = of != stream ? touch(device, of) : TEMPI_OK;
    if (status != TEMPI_OK || tempi_cuda_is_captured(of))
        return status;
    return TEMPI_CU(StreamSynchronize, of);
}

int tempi_cuda_wait_stream(int slot, uintptr_t stream)
{
    tempi_cuda_entry entry;
    tempi_cuda_device *device = tempi_cuda_device_get(slot < 0 ? 0 : slot);
    int status = device ? tempi_cuda_enter_relaxed(device, &entry) : TEMPI_ERR_DEVICE;
    if (status != TEMPI_OK)
        return status;
    status = wait_entered(device, (tempi_cuda_stream)stream);
    tempi_cuda_leave(&entry);
    return status;
}

int tempi_cuda_settle(int direction)
{
    const uintptr_t stream = named[direction].stream;
    return stream ? tempi_cuda_wait_stream(named[direction].slot, stream) : TEMPI_OK;
}

int tempi_cuda_await_program(int slot, int direction)
{
    const uintptr_t theirs = named[direction].stream;
    if (!theirs && tempi_config.stream_order == TEMPI_STREAM_ORDER_NONE)
        return TEMPI_OK;
    return tempi_cuda_wait_stream(slot, theirs ? theirs : (uintptr_t)TEMPI_CUDA_LEGACY_STREAM);
}
