#include "cuda/device.h"
#include "base/log.h"
#include "pack/pack.h"

#include <limits.h>
#include <stdlib.h>

/* ---- entering ------------------------------------------------------------------------------------------ */

/* CUstreamCaptureMode: the program may be capturing a graph elsewhere; what tempi does is not part of it. */
enum { CAPTURE_RELAXED = 2 };

/* Twice, unless the driver is lost: buffers could not even be given back without. */
static int push(tempi_cuda_context context)
{
    const int status = TEMPI_CU(CtxPushCurrent, context);
    return status == TEMPI_OK || !tempi_cuda_up() ? status : TEMPI_CU(CtxPushCurrent, context);
}

int tempi_cuda_enter(const tempi_cuda_device *device, tempi_cuda_entry *entry)
{
    tempi_cuda_context current = NULL;
    *entry = (tempi_cuda_entry){.mode = CAPTURE_RELAXED};
    if (TEMPI_CU(CtxGetCurrent, &current) != TEMPI_OK)
        current = NULL;
    if (current != device->context) {
        const int status = push(device->context);
        if (status != TEMPI_OK)
            return status;
        entry->pushed = true;
    }
    entry->captured = tempi_cu.ThreadExchangeStreamCaptureMode &&
                      tempi_cu.ThreadExchangeStreamCaptureMode(&entry->mode) == TEMPI_CUDA_SUCCESS;
    return TEMPI_OK;
}

void tempi_cuda_leave(tempi_cuda_entry *entry)
{
    tempi_cuda_context ours;
    if (entry->captured)
        (void)TEMPI_CU(ThreadExchangeStreamCaptureMode, &entry->mode);
    if (entry->pushed)
        (void)TEMPI_CU(CtxPopCurrent, &ours);
    *entry = (tempi_cuda_entry){.mode = CAPTURE_RELAXED};
}

/* ---- setting up and taking down -------------------------------------------------------------------------- */

static tempi_cuda_device *_Atomic devices[TEMPI_CUDA_DEVICES];
static pthread_mutex_t setting_up = PTHREAD_MUTEX_INITIALIZER;

static int attribute(const tempi_cuda_device *device, int which, int missing)
{
    int value;
    return TEMPI_CU(DeviceGetAttribute, &value, which, device->handle) == TEMPI_OK ? value : missing;
}

static void describe(tempi_cuda_device *device)
{
    size_t bytes = 0;
    device->multiprocessors = attribute(device, TEMPI_CUDA_MULTIPROCESSORS, 0);
    device->capability = 10 * attribute(device, TEMPI_CUDA_CAPABILITY_MAJOR, 0) +
                         attribute(device, TEMPI_CUDA_CAPABILITY_MINOR, 0);
    if (tempi_cu.DeviceTotalMem && TEMPI_CU(DeviceTotalMem, &bytes, device->handle) == TEMPI_OK)
        device->memory = (int64_t)bytes;
}

static void destroy_streams(tempi_cuda_device *device)
{
    for (int d = 0; d < 2; ++d) {
        if (device->streams[d])
            (void)TEMPI_CU(StreamDestroy, device->streams[d]);
        if (device->copy_streams[d])
            (void)TEMPI_CU(StreamDestroy, device->copy_streams[d]);
    }
}

static int create_streams(tempi_cuda_device *device)
{
    tempi_cuda_entry entry;
    int status = tempi_cuda_enter(device, &entry);
    if (status != TEMPI_OK)
        return status;
    for (int d = 0; d < 2 && status == TEMPI_OK; ++d) {
        status = TEMPI_CU(StreamCreate, &device->streams[d], TEMPI_CUDA_STREAM_NON_BLOCKING);
        if (status == TEMPI_OK)
            status = TEMPI_CU(StreamCreate, &device->copy_streams[d], TEMPI_CUDA_STREAM_NON_BLOCKING);
    }
    if (status != TEMPI_OK)
        destroy_streams(device);
    tempi_cuda_leave(&entry);
    return status;
}

static tempi_cuda_device *set_up(int ordinal)
{
    tempi_cuda_device *device = calloc(1, sizeof *device);
    if (!device)
        return NULL;
    device->ordinal = ordinal;
    if (TEMPI_CU(DeviceGet, &device->handle, ordinal) != TEMPI_OK)
        goto free_device;
    describe(device);
    if (TEMPI_CU(DevicePrimaryCtxRetain, &device->context, device->handle) != TEMPI_OK)
        goto free_device;
    if (create_streams(device) != TEMPI_OK)
        goto release_context;
    pthread_mutex_init(&device->lock, NULL);
    return device;
release_context:
    (void)TEMPI_CU(DevicePrimaryCtxRelease, device->handle);
free_device:
    free(device);
    return NULL;
}

tempi_cuda_device *tempi_cuda_device_peek(int ordinal)
{
    if (ordinal < 0 || ordinal >= TEMPI_CUDA_DEVICES)
        return NULL;
    return atomic_load_explicit(&devices[ordinal], memory_order_acquire);
}

tempi_cuda_device *tempi_cuda_device_get(int ordinal)
{
    if (!tempi_cuda_up() || ordinal < 0 || ordinal >= TEMPI_CUDA_DEVICES)
        return NULL;
    tempi_cuda_device *device = tempi_cuda_device_peek(ordinal);
    if (device)
        return device;
    pthread_mutex_lock(&setting_up);
    device = tempi_cuda_device_peek(ordinal);
    if (!device) {
        device = set_up(ordinal);
        atomic_store_explicit(&devices[ordinal], device, memory_order_release);
    }
    pthread_mutex_unlock(&setting_up);
    return device;
}

static void take_down(tempi_cuda_device *device)
{
    tempi_cuda_entry entry;
    if (tempi_cuda_up() && tempi_cuda_enter(device, &entry) == TEMPI_OK) {
        for (int i = 0; i < device->nevents; ++i)
            (void)TEMPI_CU(EventDestroy, device->events[i]);
        destroy_streams(device);
        if (device->module)
            (void)TEMPI_CU(ModuleUnload, device->module);
        tempi_cuda_leave(&entry);
        (void)TEMPI_CU(DevicePrimaryCtxRelease, device->handle);
    }
    pthread_mutex_destroy(&device->lock);
    free(device->events);
    free(device->functions);
    free(device);
}

void tempi_cuda_devices_stop(void)
{
    for (int i = 0; i < TEMPI_CUDA_DEVICES; ++i) {
        tempi_cuda_device *device = atomic_exchange(&devices[i], NULL);
        if (device)
            take_down(device);
    }
}

/* ---- events ---------------------------------------------------------------------------------------------- */

int tempi_cuda_event_get(tempi_cuda_device *device, tempi_cuda_event *out)
{
    tempi_cuda_event event = NULL;
    pthread_mutex_lock(&device->lock);
    if (device->nevents > 0)
        event = device->events[--device->nevents];
    pthread_mutex_unlock(&device->lock);
    if (event) {
        *out = event;
        return TEMPI_OK;
    }
    return TEMPI_CU(EventCreate, out, TEMPI_CUDA_EVENT_DISABLE_TIMING);
}

static bool events_grow(tempi_cuda_device *device)
{
    const int room = device->events_room ? 2 * device->events_room : 16;
    tempi_cuda_event *more = realloc(device->events, (size_t)room * sizeof *more);
    if (!more)
        return false;
    device->events = more;
    device->events_room = room;
    return true;
}

void tempi_cuda_event_put(tempi_cuda_device *device, tempi_cuda_event event)
{
    if (!event)
        return;
    pthread_mutex_lock(&device->lock);
    const bool kept = device->nevents < device->events_room || events_grow(device);
    if (kept)
        device->events[device->nevents++] = event;
    pthread_mutex_unlock(&device->lock);
    if (!kept)
        (void)TEMPI_CU(EventDestroy, event);
}

/* ---- the program's stream -------------------------------------------------------------------------------- */

static _Thread_local struct {
    uintptr_t stream;
    int ordinal; /* of the device whose context is current for it */
} named[2];      /* by direction */

void tempi_cuda_name_stream(int direction, int ordinal, uintptr_t stream)
{
    named[direction].stream = stream;
    named[direction].ordinal = ordinal;
}

void tempi_cuda_set_stream(uintptr_t stream)
{
    tempi_cuda_name_stream(TEMPI_PACK, 0, stream);
    tempi_cuda_name_stream(TEMPI_UNPACK, 0, stream);
}

uintptr_t tempi_cuda_get_stream(void)
{
    return named[TEMPI_PACK].stream;
}

static int order_by_event(tempi_cuda_device *device, tempi_cuda_stream theirs, tempi_cuda_stream stream)
{
    tempi_cuda_event event;
    int status = tempi_cuda_event_get(device, &event);
    if (status != TEMPI_OK)
        return status;
    status = TEMPI_CU(EventRecord, event, theirs);
    if (status == TEMPI_OK)
        status = TEMPI_CU(StreamWaitEvent, stream, event, 0); /* as recorded now: it may be used again at once */
    tempi_cuda_event_put(device, event);
    return status;
}

/* An event can be recorded only in a stream of its own device. The stream that the program named may be
 * another's: that, and whatever else goes wrong with the event, is made good by waiting here. */
int tempi_cuda_order_streams(tempi_cuda_device *device, tempi_cuda_stream first, tempi_cuda_stream then)
{
    const int status = order_by_event(device, first, then);
    if (status == TEMPI_OK || !tempi_cuda_up())
        return status;
    return TEMPI_CU(StreamSynchronize, first);
}

int tempi_cuda_order(tempi_cuda_device *device, tempi_cuda_stream stream, uintptr_t theirs)
{
    const bool unpacks = stream == device->streams[TEMPI_UNPACK] || stream == device->copy_streams[TEMPI_UNPACK];
    const uintptr_t own = named[unpacks ? TEMPI_UNPACK : TEMPI_PACK].stream, after = own ? own : theirs;
    return tempi_cuda_order_streams(device, after ? (tempi_cuda_stream)after : TEMPI_CUDA_LEGACY_STREAM, stream);
}

int tempi_cuda_wait_stream(int ordinal, uintptr_t stream)
{
    tempi_cuda_entry entry;
    const tempi_cuda_device *device = tempi_cuda_device_get(ordinal < 0 ? 0 : ordinal);
    int status = device ? tempi_cuda_enter(device, &entry) : TEMPI_ERR_DEVICE;
    if (status != TEMPI_OK)
        return status;
    status = TEMPI_CU(StreamSynchronize, (tempi_cuda_stream)stream);
    tempi_cuda_leave(&entry);
    return status;
}

int tempi_cuda_settle(int direction)
{
    const uintptr_t stream = named[direction].stream;
    return stream ? tempi_cuda_wait_stream(named[direction].ordinal, stream) : TEMPI_OK;
}

int tempi_cuda_await_program(int ordinal)
{
    const uintptr_t theirs = tempi_cuda_get_stream();
    return tempi_cuda_wait_stream(ordinal, theirs ? theirs : (uintptr_t)TEMPI_CUDA_LEGACY_STREAM);
}
