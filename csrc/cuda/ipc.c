#include "cuda/ipc.h"
#include "cuda/device.h"

#include <string.h>
#include <unistd.h>

enum {
    HANDLES = 64,
    OPENED = 64,
    SHARE = 8, /* of the device's memory may be open of others that is not in use */
    LAZY_ENABLE_PEER_ACCESS = 1,
    SYNC_MEMOPS = 6,     /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS */
    ALREADY_MAPPED = 208 /* CUDA_ERROR_ALREADY_MAPPED */
};

typedef struct exported {
    uint64_t buffer_id; /* 0: unused */
    bool has_handle;
    tempi_ipc_handle handle;
} exported;

typedef struct opened {
    tempi_ipc_memory memory; /* process 0: unused */
    int slot;
    uint64_t address;
    uint64_t used; /* when last */
    int pins;
} opened;

/* Devices are looked up before the lock is taken: that may forget one (tempi_ipc_forget). */
static struct {
    pthread_mutex_t lock;
    exported handles[HANDLES]; /* each in its place by buffer id */
    opened all[OPENED];
    uint64_t uses;
} ipc = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- own memory ------------------------------------------------------------------------------ */

/* A copy by the program that counts as synchronous may still be under way (CUDA driver API, "API
 * synchronization behavior"): with the attribute it is not. */
static bool ask(tempi_cuda_device *device, uint64_t base, tempi_ipc_handle *out)
{
    tempi_cuda_entry entry;
    const int yes = 1;
    if (!tempi_cu.IpcGetMemHandle || tempi_cuda_enter_relaxed(device, &entry) != TEMPI_OK)
        return false;
    const bool good = tempi_cu.IpcGetMemHandle(out, base) == TEMPI_CUDA_SUCCESS;
    if (good && tempi_cu.PointerSetAttribute)
        (void)tempi_cu.PointerSetAttribute(&yes, SYNC_MEMOPS, base);
    tempi_cuda_leave(&entry);
    return good;
}

bool tempi_ipc_export(int slot, uint64_t base, int64_t bytes, uint64_t buffer_id,
                      tempi_ipc_memory *out)
{
    tempi_cuda_device *device = buffer_id != 0 && base != 0 ? tempi_cuda_device_get(slot) : NULL;
    if (!device)
        return false;
    pthread_mutex_lock(&ipc.lock);
    exported *known = &ipc.handles[buffer_id % HANDLES];
    if (known->buffer_id != buffer_id) {
        known->has_handle = ask(device, base, &known->handle);
        known->buffer_id = buffer_id;
    }
    const bool has = known->has_handle;
    if (has)
        *out = (tempi_ipc_memory){known->handle, base, bytes, buffer_id, getpid()};
    pthread_mutex_unlock(&ipc.lock);
    return has;
}

/* ---- memory of others ------------------------------------------------------------------------ */

static bool is_idle(const opened *one)
{
    return one->memory.process != 0 && one->pins == 0;
}

static void close_one(opened *one)
{
    tempi_cuda_entry entry;
    tempi_cuda_device *device = tempi_cuda_up() ? tempi_cuda_device_peek(one->slot) : NULL;
    if (device && tempi_cuda_enter_relaxed(device, &entry) == TEMPI_OK) {
        (void)tempi_cu.IpcCloseMemHandle(one->address);
        tempi_cuda_leave(&entry);
    }
    *one = (opened){.slot = 0};
}

static opened *find(int slot, const tempi_ipc_memory *memory)
{
    for (opened *one = ipc.all; one < ipc.all + OPENED; ++one)
        if (one->slot == slot && memcmp(&one->memory, memory, sizeof *memory) == 0)
            return one;
    return NULL;
}

/* Its owner has freed it, and has another allocation at its addresses. */
static bool is_former(const opened *one, const tempi_ipc_memory *memory)
{
    return one->memory.process == memory->process && one->memory.buffer_id != memory->buffer_id &&
           one->memory.base < memory->base + (uint64_t)memory->bytes &&
           memory->base < one->memory.base + (uint64_t)one->memory.bytes;
}

static void close_former(const tempi_ipc_memory *memory)
{
    for (opened *one = ipc.all; one < ipc.all + OPENED; ++one)
        if (is_idle(one) && is_former(one, memory))
            close_one(one);
}

static void close_process(int64_t process)
{
    for (opened *one = ipc.all; one < ipc.all + OPENED; ++one)
        if (is_idle(one) && one->memory.process == process)
            close_one(one);
}

/* The one that was not used for longest; sets *bytes to those of all. NULL: there is none. */
static opened *oldest_idle(int slot, int64_t *bytes)
{
    opened *found = NULL;
    *bytes = 0;
    for (opened *one = ipc.all; one < ipc.all + OPENED; ++one)
        if (is_idle(one) && (slot < 0 || one->slot == slot)) {
            *bytes += one->memory.bytes;
            found = !found || one->used < found->used ? one : found;
        }
    return found;
}

/* Owners may have freed them: their memory is not given back before. */
static void close_excess(const tempi_cuda_device *device)
{
    int64_t bytes;
    for (opened *one; (one = oldest_idle(device->slot, &bytes)) && bytes > device->memory / SHARE;)
        close_one(one);
}

/* NULL: all are in use. */
static opened *unused_entry(void)
{
    int64_t bytes;
    for (opened *one = ipc.all; one < ipc.all + OPENED; ++one)
        if (one->memory.process == 0 && one->pins == 0)
            return one;
    opened *oldest = oldest_idle(-1, &bytes);
    if (oldest)
        close_one(oldest);
    return oldest;
}

static bool open_handle(tempi_cuda_device *device, const tempi_ipc_memory *memory,
                        tempi_cuda_address *address)
{
    tempi_cuda_entry entry;
    if (!tempi_cu.IpcOpenMemHandle || !tempi_cu.IpcCloseMemHandle ||
        tempi_cuda_enter_relaxed(device, &entry) != TEMPI_OK)
        return false;
    int result = tempi_cu.IpcOpenMemHandle(address, memory->handle, LAZY_ENABLE_PEER_ACCESS);
    if (result == ALREADY_MAPPED) {
        close_process(memory->process);
        result = tempi_cu.IpcOpenMemHandle(address, memory->handle, LAZY_ENABLE_PEER_ACCESS);
    }
    tempi_cuda_leave(&entry);
    return result == TEMPI_CUDA_SUCCESS;
}

static opened *make(tempi_cuda_device *device, const tempi_ipc_memory *memory)
{
    tempi_cuda_address address = 0;
    close_former(memory);
    if (!open_handle(device, memory, &address))
        return NULL;
    const opened made = {.memory = *memory, .slot = device->slot, .address = address};
    opened *one = unused_entry(), without_place = made;
    if (!one) {
        close_one(&without_place);
        return NULL;
    }
    *one = made;
    one->pins = 1; /* while others are closed for it */
    close_excess(device);
    one->pins = 0;
    return one;
}

bool tempi_ipc_open(int slot, const tempi_ipc_memory *memory, uint64_t *address, int *pin)
{
    tempi_cuda_device *device = tempi_cuda_device_get(slot);
    if (!device)
        return false;
    pthread_mutex_lock(&ipc.lock);
    opened *one = find(slot, memory);
    if (!one)
        one = make(device, memory);
    if (one) {
        one->used = ++ipc.uses;
        ++one->pins;
        *address = one->address;
        *pin = (int)(one - ipc.all);
    }
    pthread_mutex_unlock(&ipc.lock);
    return one != NULL;
}

void tempi_ipc_close(int pin)
{
    pthread_mutex_lock(&ipc.lock);
    --ipc.all[pin].pins;
    pthread_mutex_unlock(&ipc.lock);
}

/* ---- end ------------------------------------------------------------------------------------- */

/* An entry in use is not taken before its pins are gone. */
void tempi_ipc_forget(int slot)
{
    pthread_mutex_lock(&ipc.lock);
    for (opened *one = ipc.all; one < ipc.all + OPENED; ++one)
        if (one->memory.process != 0 && one->slot == slot)
            *one = (opened){.pins = one->pins};
    pthread_mutex_unlock(&ipc.lock);
}

void tempi_ipc_stop(void)
{
    pthread_mutex_lock(&ipc.lock);
    for (opened *one = ipc.all; one < ipc.all + OPENED; ++one)
        if (one->memory.process != 0)
            close_one(one);
    memset(ipc.handles, 0, sizeof ipc.handles);
    pthread_mutex_unlock(&ipc.lock);
}
