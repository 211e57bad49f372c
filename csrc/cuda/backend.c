#include "cuda/backend.h"
#include "base/config.h"
#include "base/device_methods.h"
#include "base/stats.h"
#include "cuda/batch.h"
#include "cuda/context_slot.h"
#include "cuda/ipc.h"
#include "cuda/move_pairs.h"
#include "cuda/offset_tables.h"
#include "cuda/pool.h"

#include <stdlib.h>

enum { FEW = 8 };

_Atomic int tempi_cuda_waiting;
_Atomic bool tempi_cuda_bursting;

/* The work of one submit: a batch for each device and direction in it. */
struct tempi_work {
    int status;
    int n;
    tempi_cuda_batch *batches[];
};

/* ---- launching open batches ------------------------------------------------------------------ */

/* Takes the open batch: it becomes LAUNCHING and the last one. NULL: none is open. */
static tempi_cuda_batch *close_open(tempi_cuda_device *device, int direction,
                                    tempi_cuda_batch **previous)
{
    pthread_mutex_lock(&device->lock);
    tempi_cuda_batch *batch = device->open[direction];
    if (batch) {
        atomic_store(&batch->state, TEMPI_BATCH_LAUNCHING);
        atomic_fetch_sub(&tempi_cuda_waiting, batch->nitems);
        device->open[direction] = NULL;
        *previous = device->last[direction];
        device->last[direction] = batch;
        (void)tempi_cuda_batch_retain(batch); /* for the caller: the list's reference moved along */
    }
    pthread_mutex_unlock(&device->lock);
    return batch;
}

static void launch_open(tempi_cuda_device *device, int direction)
{
    tempi_cuda_batch *previous = NULL, *batch = close_open(device, direction, &previous);
    if (!batch)
        return;
    tempi_cuda_batch_release(previous);
    tempi_cuda_batch_launch(batch);
    tempi_cuda_batch_release(batch);
}

static bool is_idle(tempi_cuda_device *device, int direction)
{
    tempi_cuda_batch *last = NULL;
    pthread_mutex_lock(&device->lock);
    if (device->last[direction])
        last = tempi_cuda_batch_retain(device->last[direction]);
    pthread_mutex_unlock(&device->lock);
    const bool idle = !last || tempi_cuda_batch_poll(last);
    tempi_cuda_batch_release(last);
    return idle;
}

static void end_burst(tempi_cuda_device *device, int direction)
{
    pthread_mutex_lock(&device->lock);
    tempi_cuda_burst *burst = &device->bursts[direction];
    if (burst->now > 0) {
        burst->expected = burst->now == burst->last ? burst->now : 0;
        burst->last = burst->now;
        burst->now = 0;
    }
    pthread_mutex_unlock(&device->lock);
    launch_open(device, direction);
}

/* A wait for a burst that started by itself. */
static void end_complete(tempi_cuda_device *device, int direction)
{
    pthread_mutex_lock(&device->lock);
    tempi_cuda_burst *burst = &device->bursts[direction];
    if (burst->now == burst->expected)
        burst->now = 0; /* the last one was as long */
    pthread_mutex_unlock(&device->lock);
}

/* A failure is the next launch's, which needs the order. */
static void join_streams(tempi_cuda_device *device)
{
    tempi_cuda_entry entry;
    if (tempi_cuda_enter(device, &entry) != TEMPI_OK) {
        tempi_cuda_join_forget(device);
        return;
    }
    const int status = tempi_cuda_join_waiting(device);
    tempi_cuda_leave(&entry);
    if (status != TEMPI_OK)
        atomic_store(&device->join_status, status);
}

void tempi_cuda_flush_waiting(void)
{
    atomic_store(&tempi_cuda_bursting, false);
    for (int i = 0; i < TEMPI_CUDA_DEVICES; ++i) {
        tempi_cuda_device *device = tempi_cuda_device_peek(i);
        for (int d = 0; device && d < 2; ++d)
            end_burst(device, d);
        if (device && atomic_load(&device->njoins) > 0)
            join_streams(device);
    }
}

/* ---- making operations ready ----------------------------------------------------------------- */

static void give_back(const tempi_cuda_item *items, int n)
{
    for (int i = 0; i < n; ++i)
        (void)tempi_cuda_pool_put(items[i].buffer);
}

/* Prepares the non-empty operations for devices; *out: their number. */
static int prepare_all(const tempi_op *ops, int n, tempi_cuda_item *items, int *out)
{
    int ready = 0;
    for (int i = 0; i < n; ++i) {
        if (ops[i].method == TEMPI_METHOD_HOST || ops[i].n == 0)
            continue;
        const int status = !tempi_method_is_device(ops[i].method)
                               ? TEMPI_ERR_ARG
                               : tempi_cuda_item_prepare(&ops[i], &items[ready]);
        if (status != TEMPI_OK) {
            give_back(items, ready);
            return status;
        }
        ++ready;
    }
    *out = ready;
    return TEMPI_OK;
}

/* ---- handing over ---------------------------------------------------------------------------- */

void tempi_cuda_item_note(const tempi_cuda_item *item)
{
    const bool packs = item->op.direction == TEMPI_PACK;
    if (item->op.into)
        return;
    tempi_stat_add(packs ? TEMPI_STAT_device_packs : TEMPI_STAT_device_unpacks, 1);
    tempi_stat_add(packs ? TEMPI_STAT_device_packed_bytes : TEMPI_STAT_device_unpacked_bytes,
                   item->op.n);
}

static bool belongs(const tempi_cuda_item *item, const tempi_cuda_item *to)
{
    return item->op.device == to->op.device && item->op.direction == to->op.direction;
}

/* Adds all items like the first to the open batch; NULL: out of memory, and none was added.
 * *complete: the burst has as many operations as expected. */
static tempi_cuda_batch *gather(tempi_cuda_device *device, const tempi_cuda_item *items, int n,
                                bool *complete)
{
    const int direction = items[0].op.direction;
    pthread_mutex_lock(&device->lock);
    if (!device->open[direction])
        device->open[direction] = tempi_cuda_batch_new(device, direction);
    tempi_cuda_batch *batch = device->open[direction];
    if (batch && !tempi_cuda_batch_reserve(batch, n))
        batch = NULL;
    for (int i = 0; batch && i < n; ++i) {
        if (!belongs(&items[i], &items[0]))
            continue;
        tempi_cuda_batch_add(batch, &items[i]);
        tempi_cuda_item_note(&items[i]);
        atomic_fetch_add(&tempi_cuda_waiting, 1);
        ++device->bursts[direction].now;
    }
    atomic_store(&tempi_cuda_bursting, true);
    *complete = device->bursts[direction].now == device->bursts[direction].expected;
    if (batch)
        (void)tempi_cuda_batch_retain(batch);
    pthread_mutex_unlock(&device->lock);
    return batch;
}

static int order_now(tempi_cuda_device *device, int direction, uintptr_t stream)
{
    tempi_cuda_entry entry;
    int status = tempi_cuda_enter(device, &entry);
    if (status != TEMPI_OK)
        return status;
    status = tempi_cuda_order_streams(device, (tempi_cuda_stream)stream,
                                      device->streams[direction]);
    tempi_cuda_leave(&entry);
    return status;
}

/* Settles which stream each item like the first comes after. It is waited for at the launch
 * (batch_stream.c), but that of the calling thread, which means another one to others, now. */
static int order(tempi_cuda_device *device, tempi_cuda_item *items, int n)
{
    tempi_cuda_stream of;
    uintptr_t waited = 0;
    const int direction = items[0].op.direction;
    const uintptr_t named = tempi_cuda_named_stream(direction);
    int status = TEMPI_OK;
    for (int i = 0; i < n && status == TEMPI_OK; ++i) {
        if (!belongs(&items[i], &items[0]))
            continue;
        uintptr_t *stream = &items[i].op.stream;
        if (*stream == TEMPI_CUDA_ORDERED)
            continue;
        *stream = named ? named : *stream;
        if (tempi_cuda_is_default(device, direction, *stream, &of))
            continue;
        const bool joined = named && tempi_cuda_named_is_joined(direction);
        if (!joined && *stream != (uintptr_t)TEMPI_CUDA_THREAD_STREAM)
            continue;
        if (!joined && *stream != waited)
            status = order_now(device, direction, *stream);
        waited = *stream;
        *stream = TEMPI_CUDA_ORDERED;
    }
    return status;
}

static int hand_over(tempi_cuda_item *items, int n, tempi_work *work)
{
    tempi_cuda_device *device = tempi_cuda_device_peek(items[0].op.device);
    const int direction = items[0].op.direction;
    const int status = device ? order(device, items, n) : TEMPI_ERR_DEVICE;
    if (status != TEMPI_OK)
        return status;
    bool complete = false;
    tempi_cuda_batch *batch = gather(device, items, n, &complete);
    if (!batch)
        return TEMPI_ERR_MEMORY;
    work->batches[work->n++] = batch;
    if (complete || (tempi_config.launch_at_once && is_idle(device, direction)))
        launch_open(device, direction);
    return TEMPI_OK;
}

static bool first_of_its_kind(const tempi_cuda_item *items, int i)
{
    for (int j = 0; j < i; ++j)
        if (belongs(&items[j], &items[i]))
            return false;
    return true;
}

static void give_back_kind(const tempi_cuda_item *items, int n)
{
    for (int i = 0; i < n; ++i)
        if (belongs(&items[i], &items[0]))
            give_back(&items[i], 1);
}

/* Submits group by group. If the first group fails nothing was started; a later failure is reported
 * by the ticket. */
static int hand_over_all(tempi_cuda_item *items, int n, tempi_work *work)
{
    for (int i = 0; i < n; ++i) {
        if (!first_of_its_kind(items, i))
            continue;
        const int status = hand_over(items + i, n - i, work);
        if (status == TEMPI_OK)
            continue;
        if (work->n == 0) {
            give_back(items + i, n - i);
            return status;
        }
        give_back_kind(items + i, n - i);
        work->status = status;
    }
    return TEMPI_OK;
}

static int submit_items(const tempi_op *ops, int n, tempi_cuda_item *items, tempi_work *work)
{
    int ready = 0;
    const int status = prepare_all(ops, n, items, &ready);
    return status == TEMPI_OK ? hand_over_all(items, ready, work) : status;
}

/* ---- tickets --------------------------------------------------------------------------------- */

tempi_work *tempi_cuda_work_of(tempi_cuda_batch *batch)
{
    tempi_work *work = malloc(sizeof *work + sizeof work->batches[0]);
    if (!work)
        return NULL;
    work->status = TEMPI_OK;
    work->n = 1;
    work->batches[0] = batch;
    return work;
}

static int let_go(tempi_work *work)
{
    const int status = work->status;
    free(work);
    return status;
}

static void drop_last(tempi_work *work)
{
    tempi_cuda_batch *batch = work->batches[--work->n];
    if (work->status == TEMPI_OK)
        work->status = batch->status;
    tempi_cuda_batch_release(batch);
}

static int test(tempi_work *work, int *status)
{
    while (work->n > 0) {
        tempi_cuda_batch *batch = work->batches[work->n - 1];
        if (tempi_config.launch_at_once && tempi_cuda_batch_state(batch) == TEMPI_BATCH_OPEN &&
            is_idle(batch->device, batch->direction))
            launch_open(batch->device, batch->direction);
        if (!tempi_cuda_batch_poll(batch))
            return 0;
        drop_last(work);
    }
    *status = let_go(work);
    return 1;
}

static int wait(tempi_work *work)
{
    for (int i = 0; i < work->n; ++i) {
        tempi_cuda_batch *batch = work->batches[i];
        if (tempi_cuda_batch_state(batch) == TEMPI_BATCH_OPEN)
            end_burst(batch->device, batch->direction);
        else
            end_complete(batch->device, batch->direction);
    }
    while (work->n > 0) {
        tempi_cuda_batch_wait(work->batches[work->n - 1]);
        drop_last(work);
    }
    return let_go(work);
}

/* A launch that failed at once and holds only the caller's operations: the caller may still use
 * another method. */
static int settle(tempi_work *work, tempi_work **out)
{
    if (work->n == 1 && tempi_cuda_batch_state(work->batches[0]) == TEMPI_BATCH_DONE)
        drop_last(work);
    *out = work->n > 0 ? work : NULL;
    return work->n > 0 ? TEMPI_OK : let_go(work);
}

static int submit(const tempi_op *ops, int n, tempi_work **out)
{
    tempi_cuda_item few[FEW], *items = n <= FEW ? few : malloc((size_t)n * sizeof *items);
    tempi_work *work = malloc(sizeof *work + (size_t)n * sizeof work->batches[0]);
    int status = tempi_cuda_up() ? TEMPI_ERR_MEMORY : TEMPI_ERR_DEVICE;
    if (items && work && tempi_cuda_up()) {
        work->n = 0;
        work->status = TEMPI_OK;
        status = submit_items(ops, n, items, work);
    }
    if (items != few)
        free(items);
    if (status == TEMPI_OK)
        return settle(work, out);
    free(work);
    return status;
}

const tempi_backend tempi_cuda_backend = {"cuda", submit, test, wait};

/* ---- start and stop -------------------------------------------------------------------------- */

void tempi_cuda_backend_start(void)
{
    tempi_pack_set_device_backend(&tempi_cuda_backend);
}

static int ordinal_of(int handle)
{
    int device, n = 0;
    if (tempi_cu.DeviceGetCount(&n) != TEMPI_CUDA_SUCCESS)
        return -1;
    for (int i = 0; i < n && i < TEMPI_CUDA_ORDINALS; ++i)
        if (tempi_cu.DeviceGet(&device, i) == TEMPI_CUDA_SUCCESS && device == handle)
            return i;
    return -1;
}

void tempi_cuda_backend_prepare(void)
{
    tempi_cuda_context current = NULL;
    int handle;
    if (tempi_cuda_probe() != TEMPI_CUDA_UP || !tempi_cu.CtxGetDevice ||
        tempi_cu.CtxGetCurrent(&current) != TEMPI_CUDA_SUCCESS || !current ||
        tempi_cu.CtxGetDevice(&handle) != TEMPI_CUDA_SUCCESS)
        return;
    tempi_cuda_device *device =
        tempi_cuda_device_get(tempi_cuda_context_slot_of(ordinal_of(handle), current));
    if (device)
        (void)tempi_cuda_kernels_ready(device);
}

static void finish_last(tempi_cuda_device *device, int direction)
{
    pthread_mutex_lock(&device->lock);
    tempi_cuda_batch *last = device->last[direction];
    device->last[direction] = NULL;
    pthread_mutex_unlock(&device->lock);
    if (last)
        tempi_cuda_batch_wait(last);
    tempi_cuda_batch_release(last);
}

void tempi_cuda_backend_forget(tempi_cuda_device *device)
{
    for (int d = 0; d < 2; ++d) {
        launch_open(device, d);
        finish_last(device, d);
    }
}

void tempi_cuda_stop(void)
{
    tempi_cuda_flush_waiting();
    for (int i = 0; i < TEMPI_CUDA_DEVICES; ++i) {
        tempi_cuda_device *device = tempi_cuda_device_peek(i);
        for (int d = 0; device && d < 2; ++d)
            finish_last(device, d);
    }
    tempi_ipc_stop();
    tempi_cuda_tables_clear();
    tempi_move_pairs_clear();
    tempi_cuda_pool_clear();
    tempi_cuda_devices_stop();
}
