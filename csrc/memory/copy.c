#include "memory/copy.h"
#include "base/copy_bytes.h"
#include "base/stats.h"
#include "cuda/backend.h"
#include "cuda/batch.h"
#include "memory/kind.h"

#include <stdlib.h>
#include <string.h>

/* Memory that kernels may be writing now; host-only memory is ready when MPI is called. */
static bool is_device_side(const tempi_memory *memory)
{
    return memory->kind == TEMPI_MEMORY_DEVICE || memory->kind == TEMPI_MEMORY_MANAGED;
}

/* Managed memory may have no preferred device: then the other side's device copies, else device 0.
 */
static int device_of(const tempi_memory *dst, const tempi_memory *src)
{
    if (dst->kind == TEMPI_MEMORY_DEVICE)
        return dst->device;
    if (src->kind == TEMPI_MEMORY_DEVICE)
        return src->device;
    const int one = is_device_side(dst) ? dst->device : src->device;
    return one >= 0 && one < TEMPI_CUDA_DEVICES ? one : 0;
}

/* Makes the stream wait for the default stream of another device. */
static int order_after(int ordinal, tempi_cuda_stream stream)
{
    tempi_cuda_entry entry;
    tempi_cuda_device *device = tempi_cuda_device_get(ordinal);
    int status = device ? tempi_cuda_enter(device, &entry) : TEMPI_ERR_DEVICE;
    if (status != TEMPI_OK)
        return status;
    status = tempi_cuda_order_default(device, stream);
    tempi_cuda_leave(&entry);
    return status;
}

/* One copy in flight, as a batch of its own. `other`: a device that the batch's waits for as well;
 * -1: none. */
static int put_copy(tempi_cuda_batch *batch, void *dst, const void *src, int64_t n, int other)
{
    tempi_cuda_device *device = batch->device;
    tempi_cuda_entry entry;
    int status = tempi_cuda_enter(device, &entry);
    if (status != TEMPI_OK)
        return status;
    status = tempi_cuda_stream_after(device, batch->direction, 0, &batch->stream);
    if (status == TEMPI_OK && other >= 0)
        status = order_after(other, batch->stream);
    if (status == TEMPI_OK) {
        status = TEMPI_CU(MemcpyAsync, (uintptr_t)dst, (uintptr_t)src, (size_t)n, batch->stream);
        if (status != TEMPI_OK && tempi_cuda_up()) /* a copy has no fallback: try once more */
            status = TEMPI_CU(MemcpyAsync, (uintptr_t)dst, (uintptr_t)src, (size_t)n,
                              batch->stream);
    }
    atomic_store(&batch->state, TEMPI_BATCH_LAUNCHING);
    if (status == TEMPI_OK)
        tempi_cuda_batch_fly(batch, TEMPI_OK);
    tempi_cuda_leave(&entry);
    tempi_stat_add(TEMPI_STAT_device_copies, 1);
    tempi_stat_add(TEMPI_STAT_device_copied_bytes, n);
    return status;
}

static int start(void *dst, const tempi_memory *to, const void *src, const tempi_memory *from,
                 int64_t n, tempi_cuda_batch **out)
{
    const int direction = is_device_side(to) ? TEMPI_UNPACK : TEMPI_PACK;
    const int ordinal = device_of(to, from);
    tempi_cuda_device *device = tempi_cuda_device_get(ordinal);
    if (!device)
        return TEMPI_ERR_DEVICE;
    tempi_cuda_batch *batch = tempi_cuda_batch_new(device, direction);
    if (!batch)
        return TEMPI_ERR_MEMORY;
    const tempi_memory *other = to->kind == TEMPI_MEMORY_DEVICE ? from : to;
    const bool two = other->kind == TEMPI_MEMORY_DEVICE && other->device != ordinal;
    const int status = put_copy(batch, dst, src, n, two ? other->device : -1);
    if (status == TEMPI_OK)
        *out = batch;
    else
        tempi_cuda_batch_release(batch);
    return status;
}

/* *out == NULL: the copy is already complete. */
static int submit(void *dst, const void *src, int64_t n, tempi_cuda_batch **out)
{
    tempi_memory to, from;
    *out = NULL;
    if (n <= 0)
        return n == 0 ? TEMPI_OK : TEMPI_ERR_ARG;
    tempi_memory_describe(dst, &to);
    tempi_memory_describe(src, &from);
    if (to.kind == TEMPI_MEMORY_FOREIGN || from.kind == TEMPI_MEMORY_FOREIGN)
        return TEMPI_ERR_UNSUPPORTED;
    if (is_device_side(&to) || is_device_side(&from))
        return start(dst, &to, src, &from, n, out);
    tempi_copy_bytes(dst, src, (size_t)n);
    return TEMPI_OK;
}

int tempi_memory_copy(void *dst, const void *src, int64_t n)
{
    tempi_cuda_batch *batch;
    int status = submit(dst, src, n, &batch);
    if (status != TEMPI_OK || !batch)
        return status;
    tempi_cuda_batch_wait(batch);
    status = batch->status;
    tempi_cuda_batch_release(batch);
    return status;
}

int tempi_memory_copy_submit(void *dst, const void *src, int64_t n, tempi_ticket *out)
{
    tempi_cuda_batch *batch;
    const int status = submit(dst, src, n, &batch);
    if (status != TEMPI_OK)
        return status;
    if (!batch) {
        *out = (tempi_ticket){NULL, NULL, TEMPI_OK};
        return TEMPI_OK;
    }
    tempi_work *work = tempi_cuda_work_of(batch);
    if (work) {
        *out = (tempi_ticket){&tempi_cuda_backend, work, TEMPI_OK};
        return TEMPI_OK;
    }
    tempi_cuda_batch_wait(batch);
    *out = (tempi_ticket){NULL, NULL, batch->status};
    tempi_cuda_batch_release(batch);
    return TEMPI_OK;
}
