#include "transfer/packed_buffer.h"
#include "base/stats.h"
#include "cuda/pool.h"
#include "pack/parts.h"
#include "transfer/staging.h"

static void *staging(const tempi_op *op)
{
    if (op->direction == TEMPI_PACK)
        return tempi_stage_get(op->n);
    return op->streamed ? tempi_stage_get_incoming(op->n) : tempi_stage_get_received(op->n);
}

static bool get(tempi_op *op)
{
    op->pageable = false;
    switch (op->method) {
    case TEMPI_METHOD_HOST: op->packed = staging(op); break;
    case TEMPI_METHOD_DEVICE: op->packed = tempi_cuda_buffer_get(op->device, op->n); break;
    default: op->packed = tempi_cuda_pinned_get(op->device, op->n); break;
    }
    return op->packed != NULL;
}

/* Fallbacks: without device memory one-shot, without pinned memory a copy from pageable memory. */
bool tempi_packed_get(tempi_op *op, bool must)
{
    if (get(op))
        return true;
    if (op->method == TEMPI_METHOD_DEVICE) {
        op->method = TEMPI_METHOD_ONE_SHOT;
        tempi_stat_add(TEMPI_STAT_method_changed, 1);
        if (get(op))
            return true;
    }
    if (op->method == TEMPI_METHOD_HOST)
        return false;
    if (op->method == TEMPI_METHOD_MIXED)
        tempi_parts_set_method(op->parts, TEMPI_METHOD_STAGED);
    else
        op->method = TEMPI_METHOD_STAGED;
    tempi_stat_add(TEMPI_STAT_method_changed, 1);
    op->pageable = true;
    op->packed = tempi_stage_get(op->n);
    if (!op->packed && must)
        op->packed = tempi_stage_get_beyond(op->n);
    return op->packed != NULL;
}

void tempi_packed_put(tempi_op *op)
{
    if (op->packed && (op->method == TEMPI_METHOD_HOST || !tempi_cuda_pool_put(op->packed)))
        tempi_stage_put(op->packed);
    op->packed = NULL;
}
