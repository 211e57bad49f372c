/* device_bench.c: packs of device memory for `tempi bench gpu`: through the back end, and timed by
 * the device's clock. */
#include "cuda/backend.h"
#include "cuda/batch.h"
#include "memory/kind.h"

#include <pthread.h>
#include <stdlib.h>

_Static_assert((int)TEMPI_PACK == (int)TEMPI_PACK && (int)TEMPI_UNPACK == (int)TEMPI_UNPACK,
               "one numbering");

static void start(void)
{
    tempi_memory_start();
    tempi_cuda_backend_start();
}

/* Starts the engine as the shim does when it finds an MPI; this process may have none. */
static bool is_up(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
    return tempi_cuda_probe() == TEMPI_CUDA_UP;
}

static tempi_op make_op(const tempi_device_op *op, int direction, int device)
{
    const int method = tempi_memory_of(op->packed) == TEMPI_MEMORY_DEVICE ? TEMPI_METHOD_DEVICE
                                                                          : TEMPI_METHOD_ONE_SHOT;
    return (tempi_op){.layout = op->layout,
                      .count = op->count,
                      .mem = op->mem,
                      .packed = op->packed,
                      .first = 0,
                      .n = op->count * op->layout->size,
                      .direction = direction,
                      .method = method,
                      .device = device};
}

/* NULL: out of memory. The caller frees them. */
static tempi_op *make_ops(const tempi_device_op *ops, int n, int direction, int device)
{
    tempi_op *made = malloc((size_t)n * sizeof *made);
    for (int i = 0; made && i < n; ++i)
        made[i] = make_op(&ops[i], direction, device);
    return made;
}

static bool is_sound(const tempi_device_op *ops, int n, int direction)
{
    return ops && n > 0 && (direction == TEMPI_PACK || direction == TEMPI_UNPACK);
}

int tempi_device_run(const tempi_device_op *ops, int32_t n, int32_t direction, int32_t device)
{
    if (!is_sound(ops, n, direction))
        return TEMPI_ERR_ARG;
    if (!is_up())
        return TEMPI_ERR_UNSUPPORTED;
    tempi_op *made = make_ops(ops, n, direction, device);
    const int status = made ? tempi_pack_run(made, n) : TEMPI_ERR_MEMORY;
    free(made);
    return status;
}

/* ---- by the device's clock ------------------------------------------------------------------- */

typedef struct clock_pair {
    tempi_cuda_event from, to;
} clock_pair;

static int clocks_make(clock_pair *out)
{
    *out = (clock_pair){NULL, NULL};
    const int status = TEMPI_CU(EventCreate, &out->from, 0);
    return status == TEMPI_OK ? TEMPI_CU(EventCreate, &out->to, 0) : status;
}

static void clocks_free(const clock_pair *clocks)
{
    if (clocks->from)
        (void)TEMPI_CU(EventDestroy, clocks->from);
    if (clocks->to)
        (void)TEMPI_CU(EventDestroy, clocks->to);
}

static int repeat(tempi_cuda_batch *batch, int64_t loops)
{
    int status = TEMPI_OK;
    for (int64_t i = 0; i < loops && status == TEMPI_OK; ++i)
        status = tempi_cuda_batch_repeat(batch);
    return status;
}

/* The first enqueue plans and uploads the kernels' data; it is not timed. */
static int time_batch(tempi_cuda_batch *batch, const clock_pair *clocks, int64_t loops,
                      double *seconds)
{
    const tempi_cuda_stream stream = batch->stream;
    float milliseconds = 0;
    int status = tempi_cuda_batch_enqueue(batch);
    if (status == TEMPI_OK)
        status = TEMPI_CU(EventRecord, clocks->from, stream);
    if (status == TEMPI_OK)
        status = repeat(batch, loops);
    if (status == TEMPI_OK)
        status = TEMPI_CU(EventRecord, clocks->to, stream);
    const int drained = TEMPI_CU(StreamSynchronize, stream);
    if (status == TEMPI_OK)
        status = drained;
    if (status == TEMPI_OK)
        status = TEMPI_CU(EventElapsedTime, &milliseconds, clocks->from, clocks->to);
    if (status == TEMPI_OK)
        *seconds = 1e-3 * (double)milliseconds;
    return status;
}

static tempi_cuda_batch *make_batch(tempi_cuda_device *device, const tempi_op *ops, int n)
{
    tempi_cuda_batch *batch = tempi_cuda_batch_new(device, ops[0].direction);
    if (batch && tempi_cuda_batch_reserve(batch, n)) {
        for (int i = 0; i < n; ++i)
            tempi_cuda_batch_add(batch, &(tempi_cuda_item){.op = ops[i]});
        return batch;
    }
    tempi_cuda_batch_release(batch);
    return NULL;
}

static int time_on(tempi_cuda_device *device, const tempi_op *ops, int n, int64_t loops,
                   double *seconds, int32_t *launches)
{
    clock_pair clocks;
    tempi_cuda_entry entry;
    tempi_cuda_batch *batch = make_batch(device, ops, n);
    if (!batch)
        return TEMPI_ERR_MEMORY;
    int status = tempi_cuda_enter(device, &entry);
    if (status == TEMPI_OK) {
        status = clocks_make(&clocks);
        if (status == TEMPI_OK)
            status = time_batch(batch, &clocks, loops, seconds);
        if (status == TEMPI_OK && launches)
            *launches = batch->plan.nlaunches + batch->plan.ncopies;
        clocks_free(&clocks);
        tempi_cuda_batch_fly(batch, status);
        tempi_cuda_batch_wait(batch);
        tempi_cuda_leave(&entry);
    }
    tempi_cuda_batch_release(batch);
    return status;
}

int tempi_device_time(const tempi_device_op *ops, int32_t n, int32_t direction, int32_t device,
                      int64_t loops, double *seconds, int32_t *launches)
{
    int status = tempi_device_run(ops, n, direction, device); /* loads kernels and tables */
    tempi_cuda_device *there = status == TEMPI_OK ? tempi_cuda_device_get(device) : NULL;
    if (!there || !tempi_cu.EventElapsedTime)
        return status != TEMPI_OK ? status : TEMPI_ERR_UNSUPPORTED;
    tempi_op *made = make_ops(ops, n, direction, device);
    status = made ? time_on(there, made, n, loops, seconds, launches) : TEMPI_ERR_MEMORY;
    free(made);
    return status;
}
