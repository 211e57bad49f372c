#include "cuda/device.h"
#include "base/log.h"
#include "base/stats.h"
#include "cuda/completion.h"
#include "cuda/context_slot.h"
#include "cuda/resident.h"

#include <limits.h>
#include <stdlib.h>

/* ---- entering -------------------------------------------------------------------------------- */

/* CUstreamCaptureMode: the program may be capturing a graph in another stream; tempi's calls are
 * not part of it. */
enum { CAPTURE_RELAXED = 2 };

/* Tries twice, unless the driver is lost: without the context buffers could not even be freed. */
static int push(tempi_cuda_context context)
{
    const int status = TEMPI_CU(CtxPushCurrent, context);
    return status == TEMPI_OK || !tempi_cuda_up() ? status : TEMPI_CU(CtxPushCurrent, context);
}

int tempi_cuda_enter(tempi_cuda_device *device, tempi_cuda_entry *entry)
{
    tempi_cuda_context current = NULL;
    *entry = (tempi_cuda_entry){.mode = CAPTURE_RELAXED};
    if (!tempi_cuda_device_alive(device))
        return TEMPI_ERR_DEVICE;
    if (TEMPI_CU(CtxGetCurrent, &current) != TEMPI_OK)
        current = NULL;
    if (current != device->context) {
        const int status = push(device->context);
        if (status != TEMPI_OK)
            return status;
        entry->pushed = true;
    }
    return TEMPI_OK;
}

int tempi_cuda_enter_relaxed(tempi_cuda_device *device, tempi_cuda_entry *entry)
{
    const int status = tempi_cuda_enter(device, entry);
    if (status == TEMPI_OK)
        entry->captured = tempi_cu.ThreadExchangeStreamCaptureMode &&
                          tempi_cu.ThreadExchangeStreamCaptureMode(&entry->mode) ==
                              TEMPI_CUDA_SUCCESS;
    return status;
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

/* ---- setting up and taking down -------------------------------------------------------------- */

static tempi_cuda_device *_Atomic devices[TEMPI_CUDA_DEVICES];
static tempi_cuda_device *removed; /* guarded by setting_up */
static pthread_mutex_t setting_up = PTHREAD_MUTEX_INITIALIZER;
_Atomic unsigned tempi_cuda_times;

static int attribute(const tempi_cuda_device *device, int which, int missing)
{
    int value;
    return TEMPI_CU(DeviceGetAttribute, &value, which, device->handle) == TEMPI_OK ? value
                                                                                   : missing;
}

static void describe(tempi_cuda_device *device)
{
    size_t bytes = 0;
    device->multiprocessors = attribute(device, TEMPI_CUDA_MULTIPROCESSORS, 0);
    device->cache = attribute(device, TEMPI_CUDA_L2_CACHE, 0);
    device->capability = 10 * attribute(device, TEMPI_CUDA_CAPABILITY_MAJOR, 0) +
                         attribute(device, TEMPI_CUDA_CAPABILITY_MINOR, 0);
    device->same_addresses = attribute(device, TEMPI_CUDA_HOST_POINTERS_OF_REGISTERED, 0) == 1;
    if (tempi_cu.DeviceTotalMem && TEMPI_CU(DeviceTotalMem, &bytes, device->handle) == TEMPI_OK)
        device->memory = (int64_t)bytes;
}

static void destroy_streams(tempi_cuda_device *device)
{
    for (int d = 0; d < 2; ++d) {
        const tempi_cuda_stream all[] = {device->streams[d], device->default_streams[d],
                                         device->copy_streams[d]};
        for (int i = 0; i < 3; ++i)
            if (all[i])
                (void)TEMPI_CU(StreamDestroy, all[i]);
    }
}

/* A short pack must not wait until the program's long kernel has started all of its blocks: the
 * highest priority, which blocks that have not started respect (CUDA Programming Guide, "Stream
 * Priorities"; lower numbers are higher). */
static int create_stream(tempi_cuda_stream *out, unsigned flags)
{
    int least = 0, greatest = 0;
    if (!tempi_cu.StreamCreateWithPriority || !tempi_cu.CtxGetStreamPriorityRange ||
        tempi_cu.CtxGetStreamPriorityRange(&least, &greatest) != TEMPI_CUDA_SUCCESS)
        return TEMPI_CU(StreamCreate, out, flags);
    return TEMPI_CU(StreamCreateWithPriority, out, flags, greatest);
}

static int create_streams(tempi_cuda_device *device)
{
    tempi_cuda_entry entry;
    int status = tempi_cuda_enter_relaxed(device, &entry);
    if (status != TEMPI_OK)
        return status;
    for (int d = 0; d < 2 && status == TEMPI_OK; ++d) {
        status = create_stream(&device->streams[d], TEMPI_CUDA_STREAM_NON_BLOCKING);
        if (status == TEMPI_OK)
            status = create_stream(&device->default_streams[d], TEMPI_CUDA_STREAM_BLOCKING);
        if (status == TEMPI_OK)
            status = create_stream(&device->copy_streams[d], TEMPI_CUDA_STREAM_NON_BLOCKING);
    }
    if (status != TEMPI_OK)
        destroy_streams(device);
    tempi_cuda_leave(&entry);
    return status;
}

/* Allocates a small block in the context; the driver never reuses its buffer id. */
static int leave_witness(tempi_cuda_device *device)
{
    tempi_cuda_entry entry;
    /* On failure there is no witness, and the context is never checked. */
    int status = tempi_cuda_enter_relaxed(device, &entry);
    if (status != TEMPI_OK)
        return status;
    tempi_cuda_address witness = 0;
    status = TEMPI_CU(MemAlloc, &witness, 8);
    if (status == TEMPI_OK)
        status = TEMPI_CU(PointerGetAttribute, &device->witness_id, TEMPI_CUDA_POINTER_BUFFER_ID,
                          witness);
    if (status == TEMPI_OK)
        device->witness = witness;
    else if (witness)
        (void)TEMPI_CU(MemFree, witness);
    tempi_cuda_leave(&entry);
    return status;
}

static void free_witness(tempi_cuda_device *device)
{
    tempi_cuda_entry entry;
    if (!device->witness || tempi_cuda_enter_relaxed(device, &entry) != TEMPI_OK)
        return;
    (void)TEMPI_CU(MemFree, device->witness);
    tempi_cuda_leave(&entry);
}

static tempi_cuda_device *new_device(int slot, int ordinal)
{
    tempi_cuda_device *device = calloc(1, sizeof *device);
    if (!device)
        return NULL;
    device->slot = slot;
    device->copied_rows = TEMPI_ROWS_UNKNOWN;
    device->ordinal = ordinal;
    if (TEMPI_CU(DeviceGet, &device->handle, ordinal) == TEMPI_OK) {
        describe(device);
        return device;
    }
    free(device);
    return NULL;
}

static tempi_cuda_device *set_up(int ordinal)
{
    tempi_cuda_device *device = new_device(ordinal, ordinal);
    if (!device)
        return NULL;
    if (TEMPI_CU(DevicePrimaryCtxRetain, &device->context, device->handle) != TEMPI_OK)
        goto free_device;
    (void)leave_witness(device); /* without one a reset goes unnoticed */
    if (create_streams(device) != TEMPI_OK)
        goto free_memory;
    pthread_mutex_init(&device->lock, NULL);
    pthread_mutex_init(&device->joining, NULL);
    return device;
free_memory:
    free_witness(device);
    (void)TEMPI_CU(DevicePrimaryCtxRelease, device->handle);
free_device:
    free(device);
    return NULL;
}

tempi_cuda_device *tempi_cuda_device_peek(int slot)
{
    if (slot < 0 || slot >= TEMPI_CUDA_DEVICES)
        return NULL;
    return atomic_load_explicit(&devices[slot], memory_order_acquire);
}

tempi_cuda_device *tempi_cuda_device_get(int slot)
{
    tempi_cuda_device *device = tempi_cuda_up() ? tempi_cuda_device_peek(slot) : NULL;
    if (device && slot < TEMPI_CUDA_ORDINALS && atomic_load(&device->gone)) {
        tempi_cuda_context_forget(device);
        device = tempi_cuda_device_peek(slot);
    }
    if (device || !tempi_cuda_up() || slot < 0 || slot >= TEMPI_CUDA_ORDINALS)
        return device;
    pthread_mutex_lock(&setting_up);
    device = tempi_cuda_device_peek(slot);
    if (!device) {
        device = set_up(slot);
        atomic_store_explicit(&devices[slot], device, memory_order_release);
    }
    pthread_mutex_unlock(&setting_up);
    return device;
}

static void take_down(tempi_cuda_device *device)
{
    tempi_cuda_entry entry;
    if (tempi_cuda_up() && tempi_cuda_enter_relaxed(device, &entry) == TEMPI_OK) {
        tempi_cuda_flags_free(device);
        for (int i = 0; i < device->nevents; ++i)
            (void)TEMPI_CU(EventDestroy, device->events[i]);
        destroy_streams(device);
        if (device->module)
            (void)TEMPI_CU(ModuleUnload, device->module);
        if (device->witness)
            (void)TEMPI_CU(MemFree, device->witness);
        tempi_cuda_leave(&entry);
        if (device->slot < TEMPI_CUDA_ORDINALS)
            (void)TEMPI_CU(DevicePrimaryCtxRelease, device->handle);
    }
    tempi_cuda_flags_drop(device);
    tempi_cuda_resident_drop(device);
    pthread_mutex_destroy(&device->lock);
    pthread_mutex_destroy(&device->joining);
    free(device->events);
    free(device->functions);
    free(device->resident_blocks);
    free(device);
}

void tempi_cuda_devices_stop(void)
{
    for (int i = 0; i < TEMPI_CUDA_DEVICES; ++i) {
        tempi_cuda_device *device = atomic_exchange(&devices[i], NULL);
        if (device)
            take_down(device);
    }
    while (removed) {
        tempi_cuda_device *device = removed;
        removed = device->next;
        take_down(device);
    }
    atomic_fetch_add(&tempi_cuda_times, 1);
}

/* ---- contexts of the program's own ----------------------------------------------------------- */

tempi_cuda_device *tempi_cuda_device_add(int slot, int ordinal, tempi_cuda_context context)
{
    tempi_cuda_device *device = new_device(slot, ordinal);
    if (!device)
        return NULL;
    device->context = context;
    if (leave_witness(device) != TEMPI_OK)
        goto free_device;
    if (create_streams(device) != TEMPI_OK)
        goto free_memory;
    pthread_mutex_init(&device->lock, NULL);
    pthread_mutex_init(&device->joining, NULL);
    atomic_store_explicit(&devices[slot], device, memory_order_release);
    return device;
free_memory:
    free_witness(device);
free_device:
    free(device);
    return NULL;
}

void tempi_cuda_device_remove(tempi_cuda_device *device)
{
    atomic_store_explicit(&devices[device->slot], NULL, memory_order_release);
    tempi_cuda_join_forget(device);
    pthread_mutex_lock(&setting_up);
    device->next = removed;
    removed = device;
    pthread_mutex_unlock(&setting_up);
}

/* Handles into a destroyed context must not be used at all, and the next context may get the same
 * handle (CUDA driver API, cuCtxDestroy: "undefined behavior"). So query the witness, by its
 * address. */
bool tempi_cuda_device_alive(tempi_cuda_device *device)
{
    if (!device->witness)
        return true;
    for (int tries = 0; tries < 2 && !atomic_load(&device->gone); ++tries) {
        uint64_t id = 0;
        const int result = tempi_cu.PointerGetAttribute(&id, TEMPI_CUDA_POINTER_BUFFER_ID,
                                                        device->witness);
        if (result == TEMPI_CUDA_SUCCESS && id == device->witness_id)
            return true;
        if (result != TEMPI_CUDA_SUCCESS && result != TEMPI_CUDA_INVALID_VALUE) {
            (void)tempi_cuda_check(result, "cuPointerGetAttribute");
            continue; /* inconclusive about the context */
        }
        if (atomic_exchange(&device->gone, true))
            break;
        tempi_stat_add(TEMPI_STAT_contexts_gone, 1);
        TEMPI_LOG(TEMPI_LOG_INFO, "a context of device %d was destroyed or reset", device->ordinal);
    }
    return false;
}

/* ---- events ---------------------------------------------------------------------------------- */

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
    if (!kept && tempi_cuda_device_alive(device))
        (void)TEMPI_CU(EventDestroy, event);
}
