/* cu_pool.c: stream-ordered memory. The memory is there when the call returns; it goes when its
 * turn comes in the stream, so a use after that in another order is a fault. */
#include "emulator/core/emulator.h"

#include <stdlib.h>

struct tempi_emu_pool {
    struct tempi_emu_pool *next;
    int device;
    unsigned readable; /* bit k: device k may access its memory */
    bool destroyed;
    int reuse[3];
    uint64_t threshold;
    uint64_t used;
    uint64_t high;
};

enum { RELEASE_THRESHOLD = 4, RESERVED_CURRENT, RESERVED_HIGH, USED_CURRENT, USED_HIGH };

static struct tempi_emu_pool defaults[EMU_DEVICES];
static struct tempi_emu_pool *chosen[EMU_DEVICES]; /* NULL: the default one */
static struct tempi_emu_pool *pools;

static struct tempi_emu_pool *default_of(int device)
{
    defaults[device].device = device;
    return &defaults[device];
}

CUmemoryPool tempi_emu_pool_current(int device)
{
    return chosen[device] != NULL ? chosen[device] : default_of(device);
}

static bool known(const struct tempi_emu_pool *pool)
{
    if (pool >= defaults && pool < defaults + EMU_DEVICES)
        return true;
    for (const struct tempi_emu_pool *p = pools; p != NULL; p = p->next)
        if (p == pool)
            return !p->destroyed;
    return false;
}

void tempi_emu_pool_freed(const tempi_emu_range *range)
{
    if (range->kind == EMU_POOL)
        range->pool->used -= range->size;
}

static CUresult allocate(tempi_emu_context *context, CUdeviceptr *pointer, size_t size,
                         struct tempi_emu_pool *pool, CUstream handle)
{
    tempi_emu_stream *stream;
    tempi_emu_range *range;
    CUresult result = tempi_emu_stream_of(context, handle, &stream);
    if (result == CUDA_SUCCESS && (pointer == NULL || !known(pool)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = tempi_emu_allocate(NULL, pool->device, size, EMU_POOL, &range);
    if (result != CUDA_SUCCESS)
        return result;
    range->pool = pool;
    range->readable = pool->readable;
    pool->used += size;
    pool->high = pool->used > pool->high ? pool->used : pool->high;
    *pointer = range->base;
    return CUDA_SUCCESS;
}

CUresult TEMPI_EMU_API cuMemAllocAsync(CUdeviceptr *pointer, size_t size, CUstream stream);
CUresult TEMPI_EMU_API cuMemAllocAsync(CUdeviceptr *pointer, size_t size, CUstream stream)
{
    tempi_emu_context *context;
    const CUresult result = tempi_emu_enter(EMU_cuMemAllocAsync, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    return tempi_emu_leave(
        allocate(context, pointer, size, tempi_emu_pool_current(context->device), stream));
}

CUresult TEMPI_EMU_API cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t size, CUmemoryPool pool,
                                               CUstream stream);
CUresult TEMPI_EMU_API cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t size, CUmemoryPool pool,
                                               CUstream stream)
{
    tempi_emu_context *context;
    const CUresult result = tempi_emu_enter(EMU_cuMemAllocFromPoolAsync, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    return tempi_emu_leave(allocate(context, pointer, size, pool, stream));
}

/* Also when the work was skipped: memory is not lost by an error. */
static void drop_free(tempi_emu_op *op)
{
    uint64_t base;
    memcpy(&base, op->payload, sizeof base);
    tempi_emu_range *const range = tempi_emu_range_find(base);
    if (range == NULL || range->base != base)
        return;
    tempi_emu_pool_freed(range);
    tempi_emu_release(range);
}

CUresult TEMPI_EMU_API cuMemFreeAsync(CUdeviceptr pointer, CUstream handle);
CUresult TEMPI_EMU_API cuMemFreeAsync(CUdeviceptr pointer, CUstream handle)
{
    tempi_emu_context *context;
    tempi_emu_stream *stream;
    CUresult result = tempi_emu_enter(EMU_cuMemFreeAsync, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    const tempi_emu_range *const range = tempi_emu_range_find(pointer);
    const bool ours = range != NULL && range->base == pointer &&
                      (range->kind == EMU_POOL || range->kind == EMU_DEVICE);
    result = tempi_emu_stream_of(context, handle, &stream);
    if (result != CUDA_SUCCESS || !ours)
        return tempi_emu_leave(result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE);
    tempi_emu_op *const op = tempi_emu_op_new(stream, sizeof pointer, NULL);
    if (op == NULL)
        return tempi_emu_leave(CUDA_ERROR_OUT_OF_MEMORY);
    memcpy(op->payload, &pointer, sizeof pointer);
    op->drop = drop_free;
    return tempi_emu_leave(tempi_emu_submit(op));
}

/* ---- pools ----------------------------------------------------------------------------------- */

static CUresult enter_device(tempi_emu_function function, CUdevice device)
{
    const CUresult result = tempi_emu_enter(function, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    const bool valid = device >= 0 && device < tempi_emu_option.devices;
    return valid ? CUDA_SUCCESS : tempi_emu_leave(CUDA_ERROR_INVALID_DEVICE);
}

CUresult TEMPI_EMU_API cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device);
CUresult TEMPI_EMU_API cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    const CUresult result = enter_device(EMU_cuDeviceGetDefaultMemPool, device);
    if (result != CUDA_SUCCESS)
        return result;
    *pool = default_of(device);
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device);
CUresult TEMPI_EMU_API cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    const CUresult result = enter_device(EMU_cuDeviceGetMemPool, device);
    if (result != CUDA_SUCCESS)
        return result;
    *pool = tempi_emu_pool_current(device);
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool);
CUresult TEMPI_EMU_API cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    const CUresult result = enter_device(EMU_cuDeviceSetMemPool, device);
    if (result != CUDA_SUCCESS)
        return result;
    if (!known(pool) || pool->device != device)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    chosen[device] = pool;
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuMemPoolCreate(CUmemoryPool *pool, const tempi_emu_pool_props *props);
CUresult TEMPI_EMU_API cuMemPoolCreate(CUmemoryPool *pool, const tempi_emu_pool_props *props)
{
    const CUresult result = enter_device(EMU_cuMemPoolCreate, props->location.id);
    if (result != CUDA_SUCCESS)
        return result;
    if (props->type != 1 || props->location.type != 1 || props->handle_types != 0)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    struct tempi_emu_pool *const made = calloc(1, sizeof *made);
    if (made == NULL)
        return tempi_emu_leave(CUDA_ERROR_OUT_OF_MEMORY);
    made->device = props->location.id;
    made->next = pools;
    pools = made;
    *pool = made;
    return tempi_emu_leave(CUDA_SUCCESS);
}

static CUresult enter_pool(tempi_emu_function function, const struct tempi_emu_pool *pool)
{
    const CUresult result = tempi_emu_enter(function, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    return known(pool) ? CUDA_SUCCESS : tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
}

/* What was allocated from it lives on. */
CUresult TEMPI_EMU_API cuMemPoolDestroy(CUmemoryPool pool);
CUresult TEMPI_EMU_API cuMemPoolDestroy(CUmemoryPool pool)
{
    const CUresult result = enter_pool(EMU_cuMemPoolDestroy, pool);
    if (result != CUDA_SUCCESS)
        return result;
    if (pool >= defaults && pool < defaults + EMU_DEVICES)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    pool->destroyed = true;
    if (chosen[pool->device] == pool)
        chosen[pool->device] = NULL;
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuMemPoolTrimTo(CUmemoryPool pool, size_t keep);
CUresult TEMPI_EMU_API cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    (void)keep; /* nothing is kept anyhow */
    const CUresult result = enter_pool(EMU_cuMemPoolTrimTo, pool);
    return result != CUDA_SUCCESS ? result : tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value);
CUresult TEMPI_EMU_API cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value)
{
    const CUresult result = enter_pool(EMU_cuMemPoolSetAttribute, pool);
    if (result != CUDA_SUCCESS)
        return result;
    if (attribute >= 1 && attribute <= 3)
        memcpy(&pool->reuse[attribute - 1], value, sizeof(int));
    else if (attribute == RELEASE_THRESHOLD)
        memcpy(&pool->threshold, value, sizeof pool->threshold);
    else if (attribute == USED_HIGH || attribute == RESERVED_HIGH)
        pool->high = pool->used; /* the only value that may be set is 0 */
    else
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value);
CUresult TEMPI_EMU_API cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value)
{
    const CUresult result = enter_pool(EMU_cuMemPoolGetAttribute, pool);
    if (result != CUDA_SUCCESS)
        return result;
    if (attribute < 1 || attribute > USED_HIGH)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    const uint64_t values[] = {pool->threshold, pool->used, pool->high, pool->used, pool->high};
    if (attribute <= 3)
        memcpy(value, &pool->reuse[attribute - 1], sizeof(int));
    else
        memcpy(value, &values[attribute - RELEASE_THRESHOLD], sizeof(uint64_t));
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuMemPoolSetAccess(CUmemoryPool pool, const tempi_emu_access *access,
                                          size_t n);
CUresult TEMPI_EMU_API cuMemPoolSetAccess(CUmemoryPool pool, const tempi_emu_access *access,
                                          size_t n)
{
    const CUresult result = enter_pool(EMU_cuMemPoolSetAccess, pool);
    if (result != CUDA_SUCCESS)
        return result;
    for (size_t i = 0; i < n; i++) {
        const int device = access[i].location.id;
        if (access[i].location.type != 1 || device < 0 || device >= tempi_emu_option.devices)
            return tempi_emu_leave(CUDA_ERROR_INVALID_DEVICE);
        const unsigned bit = 1u << device;
        pool->readable = access[i].flags == 3 ? pool->readable | bit : pool->readable & ~bit;
    }
    for (size_t i = 0; i < tempi_emu_range_count(); i++)
        if (tempi_emu_range_at(i)->pool == pool)
            tempi_emu_range_at(i)->readable = pool->readable;
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuMemPoolGetAccess(int *flags, CUmemoryPool pool,
                                          const tempi_emu_location *location);
CUresult TEMPI_EMU_API cuMemPoolGetAccess(int *flags, CUmemoryPool pool,
                                          const tempi_emu_location *location)
{
    const CUresult result = enter_pool(EMU_cuMemPoolGetAccess, pool);
    if (result != CUDA_SUCCESS)
        return result;
    const bool own = location->id == pool->device;
    *flags = own || (pool->readable >> location->id & 1) ? 3 : 0;
    return tempi_emu_leave(CUDA_SUCCESS);
}
