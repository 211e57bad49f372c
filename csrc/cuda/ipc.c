#include "cuda/ipc.h"
#include "cuda/device.h"

#include <string.h>
#include <unistd.h>

enum { HANDLES = 64, OPENED = 64, LAZY_ENABLE_PEER_ACCESS = 1 };

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

static struct {
    pthread_mutex_t lock;
    exported handles[HANDLES]; /* each in its place by buffer id */
    opened all[OPENED];
    uint64_t uses;
} ipc = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- own memory ------------------------------------------------------------------------------ */

static bool ask(int slot, uint64_t base, tempi_ipc_handle *out)
{
    tempi_cuda_entry entry;
    tempi_cuda_device *device = tempi_cu.IpcGetMemHandle ? tempi_cuda_device_get(slot) : NULL;
    if (!device || tempi_cuda_enter_relaxed(device, &entry) != TEMPI_OK)
        return false;
    const bool good = tempi_cu.IpcGetMemHandle(out, base) == TEMPI_CUDA_SUCCESS;
    tempi_cuda_leave(&entry);
    return good;
}

bool tempi_ipc_export(int slot, uint64_t base, uint64_t buffer_id, tempi_ipc_memory *out)
{
    if (buffer_id == 0 || base == 0)
        return false;
    pthread_mutex_lock(&ipc.lock);
    exported *known = &ipc.handles[buffer_id % HANDLES];
    if (known->buffer_id != buffer_id) {
        known->has_handle = ask(slot, base, &known->handle);
        known->buffer_id = buffer_id;
    }
    const bool has = known->has_handle;
    if (has)
        *out = (tempi_ipc_memory){known->handle, base, buffer_id, getpid()};
    pthread_mutex_unlock(&ipc.lock);
    return has;
}

/* ---- memory of others ------------------------------------------------------------------------ */

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

static bool is_same(const opened *one, int slot, const tempi_ipc_memory *memory)
{
    return one->slot == slot && memcmp(&one->memory, memory, sizeof *memory) == 0;
}

/* Another allocation lay at that address: its owner has freed it. */
static bool is_former(const opened *one, const tempi_ipc_memory *memory)
{
    return one->memory.process == memory->process && one->memory.base == memory->base &&
           one->memory.buffer_id != memory->buffer_id;
}

static opened *find(int slot, const tempi_ipc_memory *memory)
{
    for (opened *one = ipc.all; one < ipc.all + OPENED; ++one)
        if (is_same(one, slot, memory))
            return one;
    return NULL;
}

/* An unused entry, or that of memory which is gone, or was not used for longest; NULL: all are in
 * use. */
static opened *free_entry(const tempi_ipc_memory *memory)
{
    opened *found = NULL;
    for (opened *one = ipc.all; one < ipc.all + OPENED; ++one) {
        if (one->pins == 0 && is_former(one, memory))
            close_one(one);
        if (one->pins == 0 && (!found || one->used < found->used))
            found = one;
    }
    if (found && found->memory.process != 0)
        close_one(found);
    return found;
}

static opened *make(int slot, const tempi_ipc_memory *memory)
{
    tempi_cuda_entry entry;
    opened *one = free_entry(memory);
    tempi_cuda_device *device = one ? tempi_cuda_device_get(slot) : NULL;
    tempi_cuda_address address = 0;
    if (!device || !tempi_cu.IpcOpenMemHandle || !tempi_cu.IpcCloseMemHandle ||
        tempi_cuda_enter_relaxed(device, &entry) != TEMPI_OK)
        return NULL;
    const int result = tempi_cu.IpcOpenMemHandle(&address, memory->handle, LAZY_ENABLE_PEER_ACCESS);
    tempi_cuda_leave(&entry);
    if (result != TEMPI_CUDA_SUCCESS)
        return NULL;
    *one = (opened){.memory = *memory, .slot = slot, .address = address};
    return one;
}

bool tempi_ipc_open(int slot, const tempi_ipc_memory *memory, uint64_t *address, int *pin)
{
    pthread_mutex_lock(&ipc.lock);
    opened *one = find(slot, memory);
    if (!one)
        one = make(slot, memory);
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

void tempi_ipc_forget(int slot)
{
    pthread_mutex_lock(&ipc.lock);
    for (opened *one = ipc.all; one < ipc.all + OPENED; ++one)
        if (one->memory.process != 0 && one->slot == slot)
            *one = (opened){.slot = 0};
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
