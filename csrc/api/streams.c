#include "api/streams.h"
#include "base/hooks.h"
#include "base/lock.h"
#include "base/passing.h"
#include "cuda/backend.h"
#include "cuda/batch.h"
#include "memory/kind.h"
#include "memory/known.h"

#include <stdlib.h>

_Static_assert((int)TEMPI_PACK == (int)TEMPI_PACK && (int)TEMPI_UNPACK == (int)TEMPI_UNPACK,
               "one numbering");
_Static_assert((int)TEMPI_MEMORY_KIND_PINNED == (int)TEMPI_MEMORY_PINNED &&
                   (int)TEMPI_MEMORY_KIND_DEVICE == (int)TEMPI_MEMORY_DEVICE &&
                   (int)TEMPI_MEMORY_KIND_FOREIGN == (int)TEMPI_MEMORY_FOREIGN,
               "one numbering");

/* ---- memory ---------------------------------------------------------------------------------- */

static void start(void)
{
    tempi_memory_start();
    tempi_cuda_backend_start();
}

/* Starts the engine as the shim does when it finds an MPI; this process may have none. */
static tempi_memory_kind describe(const void *address, tempi_memory *out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
    return tempi_memory_describe(address, out);
}

int tempi_memory_query(const void *address, int32_t *kind, int32_t *device)
{
    tempi_memory memory;
    *kind = (int32_t)describe(address, &memory);
    const tempi_cuda_device *own = memory.device >= TEMPI_CUDA_ORDINALS
                                       ? tempi_cuda_device_peek(memory.device)
                                       : NULL;
    *device = memory.kind == TEMPI_MEMORY_HOST || memory.kind == TEMPI_MEMORY_FOREIGN
                  ? -1
                  : memory.device;
    if (own)
        *device = own->ordinal;
    return TEMPI_OK;
}

int tempi_memory_register(const void *address)
{
    tempi_memory memory;
    const tempi_memory_kind kind = describe(address, &memory);
    return kind != TEMPI_MEMORY_FOREIGN && tempi_known_register(address, 1) ? TEMPI_OK
                                                                            : TEMPI_ERR_ARG;
}

int tempi_memory_deregister(const void *address)
{
    return tempi_known_register(address, -1) ? TEMPI_OK : TEMPI_ERR_ARG;
}

int tempi_gpu_possible(void)
{
    tempi_memory memory;
    (void)describe(NULL, &memory);
    return tempi_memory_mixed;
}

/* Managed memory may belong to no device, and pinned memory to all: then use the first device. */
static int ordinal_of(const tempi_memory *memory)
{
    return memory->device >= 0 && memory->device < TEMPI_CUDA_DEVICES ? memory->device : 0;
}

static bool is_for_kernels(tempi_memory_kind kind)
{
    return kind == TEMPI_MEMORY_DEVICE || kind == TEMPI_MEMORY_MANAGED;
}

/* ---- the program's streams ------------------------------------------------------------------- */

static tempi_cuda_stream stream_of(uintptr_t number)
{
    return (tempi_cuda_stream)number;
}

int tempi_stream_wait(const void *address, uintptr_t stream)
{
    tempi_memory memory;
    (void)describe(address, &memory);
    return tempi_cuda_up() ? tempi_cuda_wait_stream(ordinal_of(&memory), stream) : TEMPI_OK;
}

int tempi_stream_join(const void *address, uintptr_t first, uintptr_t stream)
{
    tempi_memory memory;
    tempi_cuda_entry entry;
    if (first == stream)
        return TEMPI_OK;
    (void)describe(address, &memory);
    tempi_cuda_device *device = tempi_cuda_device_get(ordinal_of(&memory));
    int status = device ? tempi_cuda_enter(device, &entry) : TEMPI_ERR_DEVICE;
    if (status != TEMPI_OK)
        return status;
    status = tempi_cuda_order_streams(device, stream_of(first), stream_of(stream));
    tempi_cuda_leave(&entry);
    return status;
}

/* Orders all later work of tempi on the device: a receive may complete in a call without a stream,
 * and a loopback receive is done by its send. */
static int order_all(int ordinal, uintptr_t stream)
{
    tempi_cuda_device *device = tempi_cuda_device_get(ordinal);
    return device ? tempi_cuda_join(device, stream) : TEMPI_ERR_DEVICE;
}

/* The legacy default stream is ordered by default; the host packs host memory synchronously;
 * without an engine under MPI the library does everything. */
int tempi_stream_begin(const void *address, uintptr_t stream, int direction)
{
    tempi_memory memory;
    if (direction != TEMPI_PACK && direction != TEMPI_UNPACK)
        return TEMPI_ERR_ARG;
    const tempi_memory_kind kind = describe(address, &memory);
    if (!tempi_cuda_up())
        return TEMPI_OK;
    const int ordinal = ordinal_of(&memory);
    if (!is_for_kernels(kind) || !tempi_shim_hooks.datatype_layout)
        return tempi_cuda_wait_stream(ordinal, stream);
    const bool joins = direction == TEMPI_UNPACK && stream != 0 &&
                       stream_of(stream) != TEMPI_CUDA_LEGACY_STREAM;
    const int status = joins ? order_all(ordinal, stream) : TEMPI_OK;
    if (status != TEMPI_OK)
        return status;
    tempi_cuda_set_direction_stream(direction, ordinal, stream);
    if (joins)
        tempi_cuda_set_joined(direction);
    tempi_memory_vouch(&memory); /* until tempi_stream_end nobody frees it */
    return TEMPI_OK;
}

void tempi_stream_end(void)
{
    tempi_memory_vouch(NULL);
    tempi_cuda_set_stream(0);
}

/* ---- batches in flight ----------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock;
    tempi_cuda_batch **list; /* in launch order */
    int n, room;
} flying = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Releases finished batches, up to the first unfinished one. Caller holds the lock. */
static void sweep(void)
{
    int done = 0;
    while (done < flying.n && tempi_cuda_batch_poll(flying.list[done]))
        tempi_cuda_batch_release(flying.list[done++]);
    for (int i = done; i < flying.n; ++i)
        flying.list[i - done] = flying.list[i];
    flying.n -= done;
}

static bool keep_more(void)
{
    const int room = flying.room ? 2 * flying.room : 16;
    tempi_cuda_batch **larger = realloc(flying.list, (size_t)room * sizeof *larger);
    if (!larger)
        return false;
    flying.list = larger;
    flying.room = room;
    return true;
}

static void keep(tempi_cuda_batch *batch)
{
    pthread_mutex_lock(&flying.lock);
    sweep();
    const bool kept = flying.n < flying.room || keep_more();
    if (kept)
        flying.list[flying.n++] = batch;
    pthread_mutex_unlock(&flying.lock);
    if (kept)
        return;
    tempi_cuda_batch_wait(batch);
    tempi_cuda_batch_release(batch);
}

void tempi_streams_stop(void)
{
    pthread_mutex_lock(&flying.lock);
    for (int i = 0; i < flying.n; ++i) {
        tempi_cuda_batch_wait(flying.list[i]);
        tempi_cuda_batch_release(flying.list[i]);
    }
    free(flying.list);
    flying.list = NULL;
    flying.n = flying.room = 0;
    pthread_mutex_unlock(&flying.lock);
}

/* ---- packing in the order of a stream -------------------------------------------------------- */

static tempi_cuda_batch *batch_of(tempi_cuda_device *device, const tempi_cuda_item *item)
{
    tempi_cuda_batch *batch = tempi_cuda_batch_new(device, item->op.direction);
    if (batch && tempi_cuda_batch_reserve(batch, 1)) {
        tempi_cuda_batch_add(batch, item);
        atomic_store(&batch->state, TEMPI_BATCH_LAUNCHING);
        batch->in_program_order = true;
        return batch;
    }
    tempi_cuda_batch_release(batch);
    return NULL;
}

/* Later work of the legacy default stream comes after it without a call (stream_order.c). */
static bool is_default(const tempi_cuda_device *device, const tempi_cuda_batch *batch)
{
    return batch->stream == device->default_streams[TEMPI_PACK];
}

/* Launches the batch in the program's stream, or else after its work, and the stream then waits for
 * it. Nothing waits for the batch, which may outlive the stream: so it is known to be done by an
 * event. The caller has entered the device. */
static int launch_between(tempi_cuda_device *device, tempi_cuda_batch *batch, uintptr_t stream)
{
    if (tempi_cuda_is_captured(stream_of(stream)))
        return TEMPI_ERR_UNSUPPORTED;
    tempi_cuda_batch_launch(batch);
    if (tempi_cuda_batch_state(batch) == TEMPI_BATCH_DONE && batch->status != TEMPI_OK)
        return batch->status;
    return batch->stream == stream_of(stream) || is_default(device, batch)
               ? TEMPI_OK
               : tempi_cuda_order_streams(device, batch->stream, stream_of(stream));
}

/* Packed side in the same device's memory or in pinned memory: needs no intermediate buffer. */
static int submit(const tempi_op *op, uintptr_t stream)
{
    tempi_cuda_item item;
    tempi_cuda_entry entry;
    int status = tempi_cuda_item_prepare(op, &item);
    item.op.stream = stream ? stream : (uintptr_t)TEMPI_CUDA_LEGACY_STREAM;
    if (status != TEMPI_OK)
        return status;
    tempi_cuda_device *device = tempi_cuda_device_get(op->device);
    tempi_cuda_batch *batch = device ? batch_of(device, &item) : NULL;
    if (!batch)
        return TEMPI_ERR_MEMORY;
    status = tempi_cuda_enter(device, &entry);
    if (status == TEMPI_OK) {
        status = launch_between(device, batch, stream);
        tempi_cuda_leave(&entry);
    }
    if (tempi_cuda_batch_state(batch) == TEMPI_BATCH_LAUNCHING) { /* it was never launched */
        tempi_cuda_batch_release(batch);
        return status;
    }
    tempi_cuda_item_note(&item);
    keep(batch);
    return status;
}

/* Packed side in pageable memory: done synchronously. */
static int run_now(const tempi_op *op, uintptr_t stream)
{
    tempi_cuda_set_direction_stream(op->direction, op->device, stream);
    const int status = tempi_pack_run(op, 1);
    tempi_cuda_set_direction_stream(op->direction, op->device, 0);
    return status;
}

static int run(tempi_op *op, uintptr_t stream)
{
    tempi_memory memory, packed;
    if (op->n <= 0)
        return op->n == 0 ? TEMPI_OK : TEMPI_ERR_ARG;
    tempi_threads_share(); /* no MPI reports this program's thread level */
    const tempi_memory_kind kind = describe((const char *)op->mem + op->layout->true_lb, &memory);
    if (atomic_load(&tempi_cuda_state) == TEMPI_CUDA_LOST)
        return TEMPI_ERR_DEVICE;
    if (kind == TEMPI_MEMORY_FOREIGN)
        return TEMPI_ERR_UNSUPPORTED;
    if (kind == TEMPI_MEMORY_HOST || !tempi_cuda_up())
        return TEMPI_ERR_ARG;
    op->device = ordinal_of(&memory);
    switch (describe(op->packed, &packed)) {
    case TEMPI_MEMORY_FOREIGN: return TEMPI_ERR_UNSUPPORTED;
    case TEMPI_MEMORY_HOST: op->method = TEMPI_METHOD_STAGED; return run_now(op, stream);
    case TEMPI_MEMORY_PINNED: op->method = TEMPI_METHOD_ONE_SHOT; break;
    case TEMPI_MEMORY_DEVICE:
        if (kind == TEMPI_MEMORY_DEVICE && packed.device != op->device)
            return TEMPI_ERR_UNSUPPORTED;
        op->device = packed.device;
        op->method = TEMPI_METHOD_DEVICE;
        break;
    default: op->method = TEMPI_METHOD_DEVICE; break;
    }
    return submit(op, stream);
}

int tempi_device_pack(const tempi_layout *layout, int64_t count, const void *base, int64_t first,
                      int64_t n, void *packed, uintptr_t stream)
{
    tempi_op op = {.layout = layout,
                   .count = count,
                   .mem = (void *)(uintptr_t)base,
                   .packed = packed,
                   .first = first,
                   .n = n,
                   .direction = TEMPI_PACK};
    return run(&op, stream);
}

int tempi_device_unpack(const tempi_layout *layout, int64_t count, const void *packed,
                        int64_t first, int64_t n, void *base, uintptr_t stream)
{
    tempi_op op = {.layout = layout,
                   .count = count,
                   .mem = base,
                   .packed = (void *)(uintptr_t)packed,
                   .first = first,
                   .n = n,
                   .direction = TEMPI_UNPACK};
    return run(&op, stream);
}

/* ---- queries --------------------------------------------------------------------------------- */

static void count_devices(tempi_gpu_info *out)
{
    int n = 0;
    const int result = tempi_cu.DeviceGetCount(&n);
    if (result == TEMPI_CUDA_SUCCESS)
        out->devices = n;
    else if (tempi_cu.GetErrorName(result, &out->error) != TEMPI_CUDA_SUCCESS)
        out->error = "unknown error";
}

int tempi_gpu_query(tempi_gpu_info *out)
{
    const int loaded = tempi_cuda_load();
    *out = (tempi_gpu_info){.driver = tempi_cuda_driver_name(), .emulated = tempi_cuda_emulated()};
    if (!tempi_cuda_up())
        return TEMPI_OK;
    if (tempi_cu.DriverGetVersion)
        (void)tempi_cu.DriverGetVersion(&out->version);
    if (loaded == TEMPI_OK)
        count_devices(out);
    else if (tempi_cu.GetErrorName(tempi_cu.Init(0), &out->error) != TEMPI_CUDA_SUCCESS)
        out->error = "unknown error";
    return TEMPI_OK;
}

static int32_t attribute(int device, int which)
{
    int value = 0;
    return tempi_cu.DeviceGetAttribute(&value, which, device) == TEMPI_CUDA_SUCCESS ? value : 0;
}

int tempi_gpu_device_query(int32_t ordinal, tempi_gpu_device *out)
{
    int device;
    size_t bytes = 0;
    if (!tempi_cuda_up())
        return TEMPI_ERR_UNSUPPORTED;
    if (tempi_cu.DeviceGet(&device, ordinal) != TEMPI_CUDA_SUCCESS)
        return TEMPI_ERR_ARG;
    *out = (tempi_gpu_device){.multiprocessors = attribute(device, TEMPI_CUDA_MULTIPROCESSORS)};
    if (tempi_cu.DeviceGetName)
        (void)tempi_cu.DeviceGetName(out->name, (int)sizeof out->name - 1, device);
    out->capability = 10 * attribute(device, TEMPI_CUDA_CAPABILITY_MAJOR) +
                      attribute(device, TEMPI_CUDA_CAPABILITY_MINOR);
    if (tempi_cu.DeviceTotalMem && tempi_cu.DeviceTotalMem(&bytes, device) == TEMPI_CUDA_SUCCESS)
        out->memory = (int64_t)bytes;
    out->kernels = tempi_cuda_kernels_target(out->capability);
    return TEMPI_OK;
}
