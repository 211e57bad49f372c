#include "cuda/strided_copy.h"
#include "base/stats.h"
#include "cuda/batch.h"

/* Safe to retry: the source is not written. */
static int put(tempi_cuda_batch *batch, const tempi_side *src, const tempi_side *dst, int64_t n)
{
    batch->flag_last = true;
    int status = tempi_cuda_stream_after(batch->device, batch->direction, 0, &batch->stream);
    if (status == TEMPI_OK)
        status = tempi_cuda_batch_move(batch, src, dst, n);
    if (status == TEMPI_OK || status == TEMPI_ERR_UNSUPPORTED || !tempi_cuda_up())
        return status;
    tempi_stat_add(TEMPI_STAT_cuda_repeated, 1);
    return tempi_cuda_batch_move(batch, src, dst, n);
}

static int move(tempi_cuda_batch *batch, const tempi_side *src, const tempi_side *dst, int64_t n)
{
    tempi_cuda_entry entry;
    int status = tempi_cuda_enter(batch->device, &entry);
    if (status != TEMPI_OK)
        return status;
    status = put(batch, src, dst, n);
    if (status != TEMPI_ERR_UNSUPPORTED) {
        atomic_store(&batch->state, TEMPI_BATCH_LAUNCHING);
        tempi_cuda_batch_fly(batch, status);
        tempi_cuda_batch_wait(batch);
        status = batch->status;
    }
    tempi_cuda_leave(&entry);
    return status;
}

int tempi_cuda_move(int device, const tempi_side *src, const tempi_side *dst, int64_t n)
{
    tempi_cuda_device *on = tempi_cuda_device_get(device);
    if (!on)
        return TEMPI_ERR_DEVICE;
    const int ready = tempi_cuda_kernels_ready(on);
    if (ready != TEMPI_OK)
        return ready;
    tempi_cuda_batch *batch = tempi_cuda_batch_new(on, TEMPI_PACK);
    if (!batch)
        return TEMPI_ERR_MEMORY;
    const int status = move(batch, src, dst, n);
    tempi_cuda_batch_release(batch);
    return status;
}
