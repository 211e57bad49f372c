/* cu_ipc.c: memory and events of other processes.
 *
 * A handle names a process, one of its open files in memory, and a place in it. The other process
 * opens the file by /proc/PID/fd and maps it: nothing has a name in a file system, nothing is left
 * behind.
 */
#include "emulator/driver/cu_event.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAGIC_MEMORY 0x6d656d2d69706374ull
#define MAGIC_EVENT  0x6576742d69706374ull

enum { SLOTS = 1024, SLOT = 64 };

typedef struct {
    uint64_t magic;
    int64_t process;
    int64_t file;
    uint64_t offset;
    uint64_t size;
    uint64_t id;
    int64_t device;
} handle;

_Static_assert(sizeof(handle) <= sizeof(tempi_emu_ipc_handle), "an IPC handle has 64 bytes");

static int open_file(const handle *h)
{
    char path[64];
    char target[64];
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)h->process, (long long)h->file);
    const ssize_t length = readlink(path, target, sizeof target - 1);
    /* The process may be gone, and its number another's. */
    if (length < 0 || strncmp(target, "/memfd:tempi-emulator", 21) != 0)
        return -1;
    return open(path, O_RDWR | O_CLOEXEC);
}

/* ---- memory ---------------------------------------------------------------------------------- */

typedef struct opened {
    struct opened *next;
    int64_t process;
    uint64_t id;
    uint64_t base;
    unsigned times;
} opened;

static opened *all_opened;

CUresult TEMPI_EMU_API cuIpcGetMemHandle(tempi_emu_ipc_handle *out, CUdeviceptr pointer);
CUresult TEMPI_EMU_API cuIpcGetMemHandle(tempi_emu_ipc_handle *out, CUdeviceptr pointer)
{
    const CUresult result = tempi_emu_enter(EMU_cuIpcGetMemHandle, EMU_CONTEXT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    const tempi_emu_range *const range = tempi_emu_range_find(pointer);
    if (out == NULL || range == NULL || range->kind != EMU_DEVICE)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    const handle made = {
        .magic = MAGIC_MEMORY,
        .process = getpid(),
        .file = tempi_emu_space_fd(),
        .offset = tempi_emu_space_offset(range->base),
        .size = range->size,
        .id = range->id,
        .device = range->device,
    };
    memset(out, 0, sizeof *out);
    memcpy(out, &made, sizeof made);
    return tempi_emu_leave(CUDA_SUCCESS);
}

static opened *find_opened(const handle *h)
{
    opened *o = all_opened;
    while (o != NULL && (o->process != h->process || o->id != h->id))
        o = o->next;
    return o;
}

/* Maps the memory of another process at an address of our own. */
static CUresult map_foreign(tempi_emu_context *context, const handle *h, uint64_t *base)
{
    const int fd = open_file(h);
    if (fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_ERROR_MAP_FAILED;
    *base = tempi_emu_space_take(h->size, EMU_PAGE, 0);
    if (*base == 0 || !tempi_emu_space_map(*base, h->size, fd, h->offset))
        goto give;
    const tempi_emu_range made = {
        .base = *base,
        .size = h->size,
        .bytes = tempi_emu_space_bytes(*base),
        .device = (int)h->device,
        .context = context,
        .kind = EMU_IPC,
    };
    if (tempi_emu_range_add(&made) == NULL) {
        tempi_emu_space_unmap(*base, h->size);
        result = CUDA_ERROR_OUT_OF_MEMORY;
        goto give;
    }
    close(fd);
    return CUDA_SUCCESS;

give:
    if (*base != 0)
        tempi_emu_space_give(*base);
    close(fd);
    return result;
}

static CUresult open_memory(tempi_emu_context *context, const handle *h, CUdeviceptr *pointer,
                            unsigned flags)
{
    if (h->magic != MAGIC_MEMORY || flags > 1 || h->device >= tempi_emu_option.devices)
        return CUDA_ERROR_INVALID_VALUE;
    if (h->process == getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    opened *entry = find_opened(h);
    if (entry == NULL) {
        entry = calloc(1, sizeof *entry);
        if (entry == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        const CUresult result = map_foreign(context, h, &entry->base);
        if (result != CUDA_SUCCESS) {
            free(entry);
            return result;
        }
        entry->process = h->process;
        entry->id = h->id;
        entry->next = all_opened;
        all_opened = entry;
    }
    entry->times++;
    *pointer = entry->base;
    return CUDA_SUCCESS;
}

CUresult TEMPI_EMU_API cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, tempi_emu_ipc_handle in,
                                             unsigned flags);
CUresult TEMPI_EMU_API cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, tempi_emu_ipc_handle in,
                                             unsigned flags)
{
    handle h;
    tempi_emu_context *context;
    const CUresult result = tempi_emu_enter(EMU_cuIpcOpenMemHandle_v2, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    memcpy(&h, &in, sizeof h);
    return tempi_emu_leave(open_memory(context, &h, pointer, flags));
}

CUresult TEMPI_EMU_API cuIpcCloseMemHandle(CUdeviceptr pointer);
CUresult TEMPI_EMU_API cuIpcCloseMemHandle(CUdeviceptr pointer)
{
    tempi_emu_context *context;
    const CUresult result = tempi_emu_enter(EMU_cuIpcCloseMemHandle, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    opened **place = &all_opened;
    while (*place != NULL && (*place)->base != pointer)
        place = &(*place)->next;
    opened *const entry = *place;
    if (entry == NULL)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    if (--entry->times > 0)
        return tempi_emu_leave(CUDA_SUCCESS);
    *place = entry->next;
    free(entry);
    tempi_emu_drive_context(context);
    tempi_emu_range *const range = tempi_emu_range_find(pointer);
    if (range != NULL)
        tempi_emu_release(range);
    return tempi_emu_leave(CUDA_SUCCESS);
}

/* ---- events ---------------------------------------------------------------------------------- */

static int event_file = -1;
static uint8_t *event_slots;
static bool slot_taken[SLOTS];

static bool slots_init(void)
{
    if (event_slots != NULL)
        return true;
    event_file = memfd_create("tempi-emulator-events", MFD_CLOEXEC);
    if (event_file < 0 || ftruncate(event_file, SLOTS * SLOT) != 0)
        return false;
    void *const bytes = mmap(NULL, SLOTS * SLOT, PROT_READ | PROT_WRITE, MAP_SHARED, event_file, 0);
    event_slots = bytes == MAP_FAILED ? NULL : bytes;
    return event_slots != NULL;
}

tempi_emu_shared *tempi_emu_shared_new(void)
{
    if (!slots_init())
        return NULL;
    for (size_t i = 0; i < SLOTS; i++) {
        if (slot_taken[i])
            continue;
        slot_taken[i] = true;
        memset(event_slots + i * SLOT, 0, SLOT);
        return (tempi_emu_shared *)(void *)(event_slots + i * SLOT);
    }
    return NULL;
}

void tempi_emu_shared_free(tempi_emu_shared *shared)
{
    slot_taken[((uint8_t *)shared - event_slots) / SLOT] = false;
}

CUresult TEMPI_EMU_API cuIpcGetEventHandle(tempi_emu_ipc_handle *out, CUevent event);
CUresult TEMPI_EMU_API cuIpcGetEventHandle(tempi_emu_ipc_handle *out, CUevent event)
{
    const CUresult result = tempi_emu_enter(EMU_cuIpcGetEventHandle, EMU_CONTEXT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (!tempi_emu_event_known(event) || event->shared == NULL || event->opened)
        return tempi_emu_leave(CUDA_ERROR_INVALID_HANDLE);
    const handle made = {
        .magic = MAGIC_EVENT,
        .process = getpid(),
        .file = event_file,
        .offset = (uint64_t)((uint8_t *)event->shared - event_slots),
    };
    memset(out, 0, sizeof *out);
    memcpy(out, &made, sizeof made);
    return tempi_emu_leave(CUDA_SUCCESS);
}

/* A mapping of one process's events is kept: it is small, and others will come. */
static uint8_t *map_events(const handle *h)
{
    static struct {
        int64_t process;
        uint8_t *bytes;
    } known[64];
    size_t i = 0;
    while (i < 64 && known[i].bytes != NULL && known[i].process != h->process)
        i++;
    if (i == 64)
        return NULL;
    if (known[i].bytes != NULL)
        return known[i].bytes;
    const int fd = open_file(h);
    if (fd < 0)
        return NULL;
    void *const bytes = mmap(NULL, SLOTS * SLOT, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (bytes == MAP_FAILED)
        return NULL;
    known[i].process = h->process;
    known[i].bytes = bytes;
    return bytes;
}

CUresult TEMPI_EMU_API cuIpcOpenEventHandle(CUevent *event, tempi_emu_ipc_handle in);
CUresult TEMPI_EMU_API cuIpcOpenEventHandle(CUevent *event, tempi_emu_ipc_handle in)
{
    handle h;
    tempi_emu_context *context;
    const CUresult result = tempi_emu_enter(EMU_cuIpcOpenEventHandle, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    memcpy(&h, &in, sizeof h);
    if (h.magic != MAGIC_EVENT || h.offset >= SLOTS * SLOT)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    if (h.process == getpid())
        return tempi_emu_leave(CUDA_ERROR_INVALID_CONTEXT);
    uint8_t *const slots = map_events(&h);
    if (slots == NULL)
        return tempi_emu_leave(CUDA_ERROR_MAP_FAILED);
    tempi_emu_event *const made = tempi_emu_event_new(context, CU_EVENT_INTERPROCESS |
                                                                   CU_EVENT_DISABLE_TIMING);
    if (made == NULL)
        return tempi_emu_leave(CUDA_ERROR_OUT_OF_MEMORY);
    made->shared = (tempi_emu_shared *)(void *)(slots + h.offset);
    made->opened = true;
    *event = made;
    return tempi_emu_leave(CUDA_SUCCESS);
}
