/* context_slot.c: contexts that the program created, beside the devices' primary ones.
 *
 * 1. A device's primary context has the device's ordinal as its slot.
 * 2. Another context gets a slot when memory of it is first met.
 * 3. The driver does not report when the program destroys a context. Every entry into its device
 *    checks (tempi_cuda_device_alive), and a look-up of a context here frees the slots of destroyed
 *    ones and forgets their cached state. */
#include "cuda/context_slot.h"
#include "base/log.h"
#include "base/stats.h"
#include "cuda/backend.h"
#include "cuda/device.h"
#include "cuda/ipc.h"
#include "cuda/offset_tables.h"
#include "cuda/pool.h"

static pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER;

/* ---- primary contexts ------------------------------------------------------------------------ */

static tempi_cuda_context _Atomic primary[TEMPI_CUDA_ORDINALS]; /* NULL: not queried yet */

/* Retains the primary context briefly to identify it, but only if it is already active. */
static tempi_cuda_context ask_for_primary(int ordinal)
{
    int device, active = 1;
    unsigned flags;
    tempi_cuda_context found = NULL;
    if (TEMPI_CU(DeviceGet, &device, ordinal) != TEMPI_OK)
        return NULL;
    if (tempi_cu.DevicePrimaryCtxGetState &&
        TEMPI_CU(DevicePrimaryCtxGetState, device, &flags, &active) != TEMPI_OK)
        active = 1;
    if (!active || TEMPI_CU(DevicePrimaryCtxRetain, &found, device) != TEMPI_OK)
        return NULL;
    (void)TEMPI_CU(DevicePrimaryCtxRelease, device);
    return found;
}

/* After a reset the handle may be the same: tempi's objects in it are gone. */
static bool is_primary(int ordinal, tempi_cuda_context context)
{
    tempi_cuda_device *device = tempi_cuda_device_peek(ordinal);
    if (device && !tempi_cuda_device_alive(device) && atomic_load(&device->gone)) {
        tempi_cuda_context_forget(device);
        device = NULL;
        atomic_store(&primary[ordinal], NULL);
    }
    if (device)
        return device->context == context;
    if (atomic_load(&primary[ordinal]) != context)
        atomic_store(&primary[ordinal], ask_for_primary(ordinal));
    return atomic_load(&primary[ordinal]) == context;
}

/* ---- the others ------------------------------------------------------------------------------ */

static void forget(tempi_cuda_device *device)
{
    tempi_cuda_device_remove(device);
    tempi_cuda_backend_forget(device);
    tempi_cuda_pool_forget(device->slot);
    tempi_ipc_forget(device->slot);
    tempi_cuda_tables_forget(device->slot);
}

void tempi_cuda_context_forget(tempi_cuda_device *device)
{
    pthread_mutex_lock(&looking);
    if (tempi_cuda_device_peek(device->slot) == device) {
        forget(device);
        if (device->slot < TEMPI_CUDA_ORDINALS) /* a reset leaves the references */
            (void)TEMPI_CU(DevicePrimaryCtxRelease, device->handle);
    }
    pthread_mutex_unlock(&looking);
}

static int add(int slot, int ordinal, tempi_cuda_context context)
{
    if (slot == TEMPI_CUDA_NO_SLOT) {
        TEMPI_WARN_ONCE(
            "more than %d CUDA contexts in use: memory of the others is left to the MPI library",
            TEMPI_CUDA_DEVICES - TEMPI_CUDA_ORDINALS);
        return slot;
    }
    /* Without the device the memory is unreachable: retry once. */
    if (!tempi_cuda_device_add(slot, ordinal, context) &&
        (!tempi_cuda_up() || !tempi_cuda_device_add(slot, ordinal, context)))
        return TEMPI_CUDA_NO_SLOT;
    tempi_stat_add(TEMPI_STAT_contexts, 1);
    return slot;
}

/* Caller holds the lock. */
static int find_or_add(int ordinal, tempi_cuda_context context)
{
    int spare = TEMPI_CUDA_NO_SLOT;
    for (int slot = TEMPI_CUDA_DEVICES - 1; slot >= TEMPI_CUDA_ORDINALS; --slot) {
        tempi_cuda_device *device = tempi_cuda_device_peek(slot);
        if (device && !tempi_cuda_device_alive(device) && atomic_load(&device->gone)) {
            forget(device);
            device = NULL;
        }
        if (device && device->context == context && device->ordinal == ordinal)
            return slot;
        if (!device)
            spare = slot;
    }
    return add(spare, ordinal, context);
}

static int place_of_own(int ordinal, tempi_cuda_context context)
{
    pthread_mutex_lock(&looking);
    const int slot = find_or_add(ordinal, context);
    pthread_mutex_unlock(&looking);
    return slot;
}

/* The program's kernels use such memory in the context that is current. */
static int place_of_current(int ordinal)
{
    tempi_cuda_context current = NULL;
    int device = -1;
    if (TEMPI_CU(CtxGetCurrent, &current) != TEMPI_OK || !current || is_primary(ordinal, current))
        return ordinal;
    if (!tempi_cu.CtxGetDevice || tempi_cu.CtxGetDevice(&device) != TEMPI_CUDA_SUCCESS)
        return ordinal; /* destroyed while it was current here */
    int own = -1;
    if (TEMPI_CU(DeviceGet, &own, ordinal) != TEMPI_OK || own != device)
        return ordinal;
    return place_of_own(ordinal, current);
}

int tempi_cuda_context_slot_of(int ordinal, tempi_cuda_context context)
{
    if (ordinal < 0 || ordinal >= TEMPI_CUDA_ORDINALS)
        return TEMPI_CUDA_NO_SLOT;
    if (!context)
        return place_of_current(ordinal);
    return is_primary(ordinal, context) ? ordinal : place_of_own(ordinal, context);
}
