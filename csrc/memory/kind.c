#include "memory/kind.h"
#include "base/loaded.h"
#include "base/log.h"
#include "base/stats.h"
#include "cuda/driver.h"

#include <stddef.h>
#include <unistd.h>

bool tempi_memory_mixed;

static bool amd_gpu;

void tempi_memory_start(void)
{
    tempi_cuda_start();
    amd_gpu = access("/dev/kfd", F_OK) == 0;
    tempi_memory_mixed = amd_gpu || tempi_cuda_possible();
}

static bool amd_runtime_loaded(void)
{
    static tempi_watch hip = {"libamdhip64.so", 0}, hsa = {"libhsa-runtime64.so", 0};
    return tempi_watch_look(&hip, NULL, 0) || tempi_watch_look(&hsa, NULL, 0);
}

/* ---- what the driver says ------------------------------------------------------------------------------ */

/* Attributes are written in their own sizes (4 or 8 bytes) to zeroed 8-byte cells; every machine with
 * CUDA is little-endian. */
enum { TYPE, MANAGED, ORDINAL, START, SIZE, ID, ATTRIBUTES };

static tempi_memory_kind kind_of(const uint64_t *cells)
{
    if (cells[MANAGED])
        return TEMPI_MEMORY_MANAGED;
    switch (cells[TYPE]) {
    case 0: return TEMPI_MEMORY_HOST;
    case TEMPI_CUDA_MEMORY_HOST: return TEMPI_MEMORY_PINNED;
    case TEMPI_CUDA_MEMORY_DEVICE: return TEMPI_MEMORY_DEVICE;
    case TEMPI_CUDA_MEMORY_UNIFIED: return TEMPI_MEMORY_MANAGED;
    default: return TEMPI_MEMORY_FOREIGN;
    }
}

/* Answers that are no failures: an address that CUDA does not know, CUDA not initialised (so no address
 * can be its own), CUDA gone at the end of the program (so none is any more). */
static bool means_host(int result)
{
    return result == TEMPI_CUDA_INVALID_VALUE || result == TEMPI_CUDA_NOT_INITIALIZED ||
           result == TEMPI_CUDA_DEINITIALIZED || result == TEMPI_CUDA_INVALID_CONTEXT;
}

static tempi_memory_kind query(const void *address, tempi_memory *out)
{
    int names[ATTRIBUTES] = {TEMPI_CUDA_POINTER_MEMORY_TYPE, TEMPI_CUDA_POINTER_IS_MANAGED,
                             TEMPI_CUDA_POINTER_ORDINAL,     TEMPI_CUDA_POINTER_RANGE_START,
                             TEMPI_CUDA_POINTER_RANGE_SIZE,  TEMPI_CUDA_POINTER_BUFFER_ID};
    uint64_t cells[ATTRIBUTES] = {0};
    void *data[ATTRIBUTES];
    for (int i = 0; i < ATTRIBUTES; ++i)
        data[i] = &cells[i];
    tempi_stat_add(TEMPI_STAT_pointer_queries, 1);
    int result = tempi_cu.PointerGetAttributes(ATTRIBUTES, names, data, (uintptr_t)address);
    if (result != TEMPI_CUDA_SUCCESS) {
        if (means_host(result))
            return TEMPI_MEMORY_HOST;
        /* An MPI library that takes no device addresses must not get one for a failure that passes. */
        (void)tempi_cuda_check(result, "cuPointerGetAttributes");
        if (tempi_cuda_up())
            result = tempi_cu.PointerGetAttributes(ATTRIBUTES, names, data, (uintptr_t)address);
    }
    if (result != TEMPI_CUDA_SUCCESS) {
        if (means_host(result))
            return TEMPI_MEMORY_HOST;
        (void)tempi_cuda_check(result, "cuPointerGetAttributes");
        return TEMPI_MEMORY_FOREIGN;
    }
    const tempi_memory_kind kind = kind_of(cells);
    if (kind == TEMPI_MEMORY_HOST || kind == TEMPI_MEMORY_FOREIGN)
        return kind;
    *out = (tempi_memory){kind, (int32_t)(uint32_t)cells[ORDINAL], (uintptr_t)cells[START], (int64_t)cells[SIZE],
                          cells[ID]};
    return kind;
}

/* ---- what was asked lately ----------------------------------------------------------------------------- */

/* A few allocations of each thread. The driver gives a buffer id out once: if the address still has it,
 * it is the same allocation and all that was said of it holds. */
enum { RECENT = 4 };
static _Thread_local struct {
    tempi_memory of[RECENT];
    unsigned next;
} recent;

static bool recent_find(const void *address, tempi_memory *out)
{
    for (int i = 0; i < RECENT; ++i) {
        tempi_memory *known = &recent.of[i];
        if ((uintptr_t)address - known->base >= (uintptr_t)known->size)
            continue;
        uint64_t id = 0;
        tempi_stat_add(TEMPI_STAT_pointer_queries, 1);
        if (tempi_cu.PointerGetAttribute(&id, TEMPI_CUDA_POINTER_BUFFER_ID, (uintptr_t)address) ==
                TEMPI_CUDA_SUCCESS &&
            id == known->buffer_id) {
            *out = *known;
            return true;
        }
        known->size = 0;
    }
    return false;
}

static void recent_note(const tempi_memory *memory)
{
    if (memory->base == 0 || memory->size <= 0 || memory->buffer_id == 0)
        return;
    recent.of[recent.next++ % RECENT] = *memory;
}

void tempi_memory_forget(void)
{
    for (int i = 0; i < RECENT; ++i)
        recent.of[i].size = 0;
}

tempi_memory_kind tempi_memory_ask(const void *address, tempi_memory *out)
{
    *out = (tempi_memory){.kind = TEMPI_MEMORY_HOST, .device = -1};
    if (amd_gpu && amd_runtime_loaded()) {
        TEMPI_WARN_ONCE("this program uses AMD's GPU run-time: all messages are left to MPI");
        return out->kind = TEMPI_MEMORY_FOREIGN;
    }
    switch (tempi_cuda_look()) {
    case TEMPI_CUDA_ABSENT: return TEMPI_MEMORY_HOST;
    case TEMPI_CUDA_OFF: return out->kind = TEMPI_MEMORY_FOREIGN;
    default: break;
    }
    if (recent_find(address, out))
        return out->kind;
    out->kind = query(address, out);
    recent_note(out);
    return out->kind;
}
