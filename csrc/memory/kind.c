#include "memory/kind.h"
#include "base/loaded.h"
#include "base/log.h"
#include "base/stats.h"
#include "cuda/context_slot.h"
#include "cuda/device.h"
#include "memory/known.h"

#include <errno.h>
#include <stddef.h>
#include <sys/uio.h>
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
    return tempi_watch_probe(&hip, NULL, 0) || tempi_watch_probe(&hsa, NULL, 0);
}

/* ---- driver queries -------------------------------------------------------------------------- */

/* Attributes are written in their own sizes (4 or 8 bytes) to zeroed 8-byte cells; every machine
 * with CUDA is little-endian. */
enum { TYPE, MANAGED, ORDINAL, START, SIZE, ID, CONTEXT, ATTRIBUTES };

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

/* Results that are not failures: CUDA does not know the address, CUDA is not initialised (so no
 * address is its own), CUDA is shut down at the end of the program (likewise). */
static bool means_host(int result)
{
    return result == TEMPI_CUDA_INVALID_VALUE || result == TEMPI_CUDA_NOT_INITIALIZED ||
           result == TEMPI_CUDA_DEINITIALIZED || result == TEMPI_CUDA_INVALID_CONTEXT;
}

/* Memory that kernels may be writing is accessed in its own context; pinned host memory, on any
 * device. FOREIGN: the context cannot be used. */
static tempi_memory_kind place(tempi_memory *memory, tempi_cuda_context context)
{
    const bool in_context = memory->kind == TEMPI_MEMORY_DEVICE ||
                            (memory->kind == TEMPI_MEMORY_MANAGED && context &&
                             memory->device >= 0);
    if (!in_context)
        return memory->kind;
    const int found = tempi_cuda_context_slot_of(memory->device, context);
    if (found == TEMPI_CUDA_NO_SLOT)
        return TEMPI_MEMORY_FOREIGN;
    memory->device = found;
    return memory->kind;
}

/* ---- the system's own memory ------------------------------------------------------------------
 */

/* Whether some device's kernels reach pageable memory (Grace Hopper, HMM). */
static bool pageable_access(void)
{
    static _Atomic int known = -1;
    if (atomic_load(&known) >= 0)
        return atomic_load(&known);
    int n = 0, any = 0;
    if (tempi_cu.DeviceGetCount(&n) != TEMPI_CUDA_SUCCESS)
        return false;
    for (int i = 0; i < n; ++i) {
        int device, value = 0;
        if (tempi_cu.DeviceGet(&device, i) == TEMPI_CUDA_SUCCESS &&
            tempi_cu.DeviceGetAttribute(&value, TEMPI_CUDA_PAGEABLE_ACCESS, device) ==
                TEMPI_CUDA_SUCCESS)
            any |= value;
    }
    atomic_store(&known, any != 0);
    return any;
}

/* Memory of malloc that was prefetched to a device, or prefers one, is packed by its kernels; where
 * neither is known it is the host's. (CUDA driver API, cuMemRangeGetAttribute; drivers that answer
 * for managed memory only leave it unknown.) */
static tempi_memory_kind kind_of_system_memory(const void *address, tempi_memory *out)
{
    static const int attributes[] = {TEMPI_CUDA_RANGE_LAST_PREFETCH, TEMPI_CUDA_RANGE_PREFERRED};
    for (int i = 0; i < 2 && tempi_cu.MemRangeGetAttribute && pageable_access(); ++i) {
        int32_t device = -1;
        if (tempi_cu.MemRangeGetAttribute(&device, sizeof device, attributes[i], (uintptr_t)address,
                                          1) != TEMPI_CUDA_SUCCESS ||
            device < 0 || device >= TEMPI_CUDA_ORDINALS)
            continue;
        *out = (tempi_memory){.kind = TEMPI_MEMORY_MANAGED, .device = device};
        return TEMPI_MEMORY_MANAGED;
    }
    return TEMPI_MEMORY_HOST;
}

/* *ordinal: of memory that belongs to no context; else -1. */
static tempi_memory_kind query(const void *address, tempi_memory *out, int32_t *ordinal)
{
    int names[ATTRIBUTES] = {TEMPI_CUDA_POINTER_MEMORY_TYPE, TEMPI_CUDA_POINTER_IS_MANAGED,
                             TEMPI_CUDA_POINTER_ORDINAL,     TEMPI_CUDA_POINTER_RANGE_START,
                             TEMPI_CUDA_POINTER_RANGE_SIZE,  TEMPI_CUDA_POINTER_BUFFER_ID,
                             TEMPI_CUDA_POINTER_CONTEXT};
    uint64_t cells[ATTRIBUTES] = {0};
    void *data[ATTRIBUTES];
    for (int i = 0; i < ATTRIBUTES; ++i)
        data[i] = &cells[i];
    tempi_stat_add(TEMPI_STAT_pointer_queries, 1);
    int result = TEMPI_CUDA_SUCCESS;
    for (int tries = 0; tries < 2; ++tries) { /* retry: a wrong answer would crash the program */
        result = tempi_cu.PointerGetAttributes(ATTRIBUTES, names, data, (uintptr_t)address);
        if (result == TEMPI_CUDA_SUCCESS || means_host(result))
            break;
        (void)tempi_cuda_check(result, "cuPointerGetAttributes");
    }
    if (result != TEMPI_CUDA_SUCCESS)
        return means_host(result) ? TEMPI_MEMORY_HOST : TEMPI_MEMORY_FOREIGN;
    const tempi_memory_kind kind = kind_of(cells);
    if (kind == TEMPI_MEMORY_HOST)
        return kind_of_system_memory(address, out);
    if (kind == TEMPI_MEMORY_FOREIGN)
        return kind;
    *out = (tempi_memory){kind, (int32_t)(uint32_t)cells[ORDINAL], (uintptr_t)cells[START],
                          (int64_t)cells[SIZE], cells[ID]};
    *ordinal = kind == TEMPI_MEMORY_DEVICE && cells[CONTEXT] == 0 ? out->device : -1;
    return place(out, (tempi_cuda_context)(uintptr_t)cells[CONTEXT]);
}

/* ---- known allocations ----------------------------------------------------------------------- */

enum { ASKED = 32 };

/* By their buffer ids. */
static _Thread_local struct {
    int calls, n;
    uint64_t asked[ASKED];
} call;

void tempi_memory_begin_call(void)
{
    if (call.calls++ == 0)
        call.n = 0;
}

void tempi_memory_end_call(void)
{
    --call.calls;
}

static bool was_asked(uint64_t buffer_id)
{
    for (int i = 0; call.calls > 0 && i < call.n; ++i)
        if (call.asked[i] == buffer_id)
            return true;
    return false;
}

static void note_asked(uint64_t buffer_id)
{
    if (call.calls > 0 && call.n < ASKED)
        call.asked[call.n++] = buffer_id;
}

/* The driver never reuses a buffer id: if the address still has it, it is the same allocation and
 * its attributes hold. */
static bool is_same(const void *address, const tempi_memory *known)
{
    uint64_t id = 0;
    if (was_asked(known->buffer_id))
        return true;
    tempi_stat_add(TEMPI_STAT_pointer_queries, 1);
    if (tempi_cu.PointerGetAttribute(&id, TEMPI_CUDA_POINTER_BUFFER_ID, (uintptr_t)address) !=
            TEMPI_CUDA_SUCCESS ||
        id != known->buffer_id)
        return false;
    note_asked(id);
    return true;
}

/* The context slot of memory that belongs to no context changes with the current context; while
 * messages are pending, that of their memory serves. */
static tempi_memory_kind place_again(const tempi_known *known, tempi_memory *out)
{
    if (known->ordinal < 0 || tempi_known_slot(known->ordinal, &out->device))
        return out->kind;
    out->device = known->ordinal;
    out->kind = place(out, NULL);
    if (out->kind != TEMPI_MEMORY_FOREIGN)
        tempi_known_note(out, known->ordinal);
    return out->kind;
}

static bool find_known(const void *address, tempi_memory *out)
{
    tempi_known known;
    if (!tempi_known_find(address, &known))
        return false;
    if (!known.in_use && !is_same(address, &known.memory)) {
        tempi_known_drop(&known);
        return false;
    }
    *out = known.memory;
    if (!known.in_use)
        out->kind = place_again(&known, out);
    return true;
}

static _Thread_local tempi_memory vouched; /* size 0: none */

void tempi_memory_vouch(const tempi_memory *memory)
{
    vouched = memory ? *memory : (tempi_memory){.size = 0};
}

static bool is_vouched(const void *address)
{
    return (uintptr_t)address - vouched.base < (uint64_t)vouched.size;
}

/* ---- after a device was lost ----------------------------------------------------------------- */

/* A system call on an address that the CPU cannot reach fails, where a load would crash. */
static bool host_reaches(const void *address)
{
    char byte;
    struct iovec here = {&byte, 1}, there = {(void *)(uintptr_t)address, 1};
    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1 || errno != EFAULT;
}

/* The driver no longer answers. Memory that the CPU cannot reach was a device's: the operation will
 * fail, but neither tempi nor the library touches it. */
static tempi_memory_kind ask_lost(const void *address, tempi_memory *out)
{
    if (!host_reaches(address))
        *out = (tempi_memory){.kind = TEMPI_MEMORY_DEVICE, .device = 0};
    return out->kind;
}

tempi_memory_kind tempi_memory_ask(const void *address, tempi_memory *out)
{
    *out = (tempi_memory){.kind = TEMPI_MEMORY_HOST, .device = -1};
    if (amd_gpu && amd_runtime_loaded()) {
        TEMPI_WARN_ONCE(
            "this program uses AMD's GPU runtime: messages are left to the MPI library");
        return out->kind = TEMPI_MEMORY_FOREIGN;
    }
    switch (tempi_cuda_probe()) {
    case TEMPI_CUDA_ABSENT: return TEMPI_MEMORY_HOST;
    case TEMPI_CUDA_OFF: return out->kind = TEMPI_MEMORY_FOREIGN;
    case TEMPI_CUDA_LOST: return ask_lost(address, out);
    default: break;
    }
    if (is_vouched(address)) {
        *out = vouched;
        return out->kind;
    }
    if (find_known(address, out))
        return out->kind;
    int32_t ordinal = -1;
    out->kind = query(address, out, &ordinal);
    if (out->kind == TEMPI_MEMORY_FOREIGN && !tempi_cuda_up()) { /* lost by this very query */
        out->kind = TEMPI_MEMORY_HOST;
        return ask_lost(address, out);
    }
    tempi_known_note(out, ordinal);
    return out->kind;
}
