#include "cuda/resident.h"
#include "cuda/op_list.h"
#include "cuda/pool.h"

#include <stdlib.h>
#include <string.h>

enum { REMEMBERED_LEAST = 4 /* operations: fewer are planned as fast as they are compared */ };

/* Whether a batch in that stream may use it. */
static bool is_valid(const tempi_resident *r, tempi_cuda_stream stream)
{
    return r->n > 0 && (r->there || r->stream == stream);
}

static tempi_resident *find(tempi_cuda_device *device, int direction, const void *bytes, size_t n,
                            tempi_cuda_stream stream)
{
    for (int i = 0; i < TEMPI_CUDA_RESIDENTS; ++i) {
        tempi_resident *r = &device->residents[direction][i];
        if (r->n == n && is_valid(r, stream) && memcmp(r->bytes, bytes, n) == 0)
            return r;
    }
    return NULL;
}

static tempi_resident *find_planned(const tempi_cuda_batch *batch, const tempi_op *ops, int n)
{
    for (int i = 0; i < TEMPI_CUDA_RESIDENTS; ++i) {
        tempi_resident *r = &batch->device->residents[batch->direction][i];
        if (is_valid(r, batch->stream) && tempi_op_list_is(r->of, ops, n))
            return r;
    }
    return NULL;
}

static uint64_t use(tempi_cuda_device *device, int direction, tempi_resident *r, int *out)
{
    ++r->users;
    r->used = ++device->resident_uses;
    *out = (int)(r - device->residents[direction]);
    return r->address;
}

uint64_t tempi_cuda_resident_find(tempi_cuda_device *device, int direction, const void *bytes,
                                  size_t n, tempi_cuda_stream stream, int *out)
{
    pthread_mutex_lock(&device->lock);
    tempi_resident *r = find(device, direction, bytes, n, stream);
    const uint64_t address = r ? use(device, direction, r, out) : 0;
    pthread_mutex_unlock(&device->lock);
    return address;
}

/* The least recently used place that no batch uses. Caller holds the lock. */
static tempi_resident *oldest(tempi_cuda_device *device, int direction)
{
    tempi_resident *found = NULL;
    for (int i = 0; i < TEMPI_CUDA_RESIDENTS; ++i) {
        tempi_resident *r = &device->residents[direction][i];
        if (r->users == 0 && (!found || r->used < found->used))
            found = r;
    }
    return found;
}

/* Takes a place, whose users count it as in use while it is filled. */
static tempi_resident *take_place(tempi_cuda_device *device, int direction, tempi_resident *before)
{
    pthread_mutex_lock(&device->lock);
    tempi_resident *r = oldest(device, direction);
    if (r) {
        *before = *r;
        *r = (tempi_resident){.users = 1, .used = ++device->resident_uses};
    }
    pthread_mutex_unlock(&device->lock);
    return r;
}

/* What the host holds of it. */
static void let_go(tempi_resident *r)
{
    free(r->bytes);
    free(r->launches);
    tempi_op_list_free(r->of);
    *r = (tempi_resident){.n = 0};
}

static void drop(tempi_resident *r)
{
    if (r->address)
        (void)tempi_cuda_pool_put((void *)(uintptr_t)r->address);
    let_go(r);
}

uint64_t tempi_cuda_resident_add(tempi_cuda_device *device, int direction, const void *bytes,
                                 size_t n, tempi_cuda_stream stream, int *out)
{
    tempi_resident before, made = {.n = n, .stream = stream, .users = 1};
    tempi_resident *r = take_place(device, direction, &before);
    if (!r)
        return 0;
    drop(&before);
    made.address = (uintptr_t)tempi_cuda_buffer_get(device->slot, (int64_t)n);
    made.bytes = made.address ? malloc(n) : NULL;
    if (made.bytes)
        memcpy(made.bytes, bytes, n);
    else
        drop(&made);
    pthread_mutex_lock(&device->lock);
    made.used = r->used;
    *r = made;
    pthread_mutex_unlock(&device->lock);
    *out = (int)(r - device->residents[direction]);
    return made.address;
}

bool tempi_cuda_resident_recall(tempi_cuda_batch *batch, const tempi_op *ops, int n)
{
    tempi_cuda_device *device = batch->device;
    int which = -1;
    if (n < REMEMBERED_LEAST || batch->resident >= 0)
        return false;
    pthread_mutex_lock(&device->lock);
    tempi_resident *r = find_planned(batch, ops, n);
    if (r)
        (void)use(device, batch->direction, r, &which);
    pthread_mutex_unlock(&device->lock);
    if (!r)
        return false;
    batch->resident = which; /* in use, so that it stays as it is */
    return tempi_cuda_plan_take(&batch->plan, r->launches, r->nlaunches) == TEMPI_OK;
}

/* NULL: no memory, or the plan is not its launches alone. */
static tempi_launch *copy_launches(const tempi_plan *plan)
{
    const size_t bytes = (size_t)plan->nlaunches * sizeof *plan->launches;
    tempi_launch *launches = plan->ncopies == 0 && plan->nlaunches > 0 ? malloc(bytes) : NULL;
    if (launches)
        memcpy(launches, plan->launches, bytes);
    return launches;
}

void tempi_cuda_resident_remember(const tempi_cuda_batch *batch, const tempi_op *ops, int n)
{
    if (n < REMEMBERED_LEAST || batch->resident < 0)
        return;
    tempi_cuda_device *device = batch->device;
    tempi_resident old = {.launches = copy_launches(&batch->plan)};
    old.of = old.launches ? tempi_op_list_new(ops, n) : NULL;
    pthread_mutex_lock(&device->lock);
    tempi_resident *r = &device->residents[batch->direction][batch->resident];
    if (old.of && r->users == 1) { /* else others may be reading it */
        const tempi_resident made = old;
        old = (tempi_resident){.of = r->of, .launches = r->launches};
        r->of = made.of;
        r->launches = made.launches;
        r->nlaunches = batch->plan.nlaunches;
    }
    pthread_mutex_unlock(&device->lock);
    let_go(&old);
}

/* Takes out a block that no batch uses; the caller drops it without the lock. */
static tempi_resident take_out(tempi_resident *r)
{
    const tempi_resident gone = *r;
    *r = (tempi_resident){.n = 0};
    return gone;
}

void tempi_cuda_resident_release(tempi_cuda_device *device, int direction, int which, bool good)
{
    tempi_resident gone = {.n = 0};
    pthread_mutex_lock(&device->lock);
    tempi_resident *r = &device->residents[direction][which];
    --r->users;
    r->there |= good;
    if (!good)
        r->n = 0; /* never found again */
    if (r->n == 0 && r->users == 0)
        gone = take_out(r);
    pthread_mutex_unlock(&device->lock);
    drop(&gone);
}

void tempi_cuda_residents_trim(void)
{
    for (int slot = 0; slot < TEMPI_CUDA_DEVICES; ++slot) {
        tempi_cuda_device *device = tempi_cuda_device_peek(slot);
        for (int i = 0; device && i < 2 * TEMPI_CUDA_RESIDENTS; ++i) {
            tempi_resident *r = &device->residents[0][0] + i, gone = {.n = 0};
            pthread_mutex_lock(&device->lock);
            if (r->users == 0)
                gone = take_out(r);
            pthread_mutex_unlock(&device->lock);
            drop(&gone);
        }
    }
}

void tempi_cuda_resident_drop(tempi_cuda_device *device)
{
    for (int d = 0; d < 2; ++d)
        for (int i = 0; i < TEMPI_CUDA_RESIDENTS; ++i)
            let_go(&device->residents[d][i]);
}
