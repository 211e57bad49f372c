/* launch.c: enqueues a batch's items into the device's stream.
 *
 *   1. unpack: copy staged bytes to the device
 *   2. one plan for all items that are not pipelined: its copies, its launches
 *   3. pack: copy staged bytes to the host
 *   4. the pipelined items, piece by piece: kernels in the stream, copies in the copy stream
 *   5. the first pieces of those in pageable memory (pageable.c)
 */
#include "base/config.h"
#include "base/stats.h"
#include "cuda/batch.h"
#include "cuda/completion.h"
#include "cuda/copy_list.h"
#include "cuda/move_pairs.h"
#include "cuda/offset_tables.h"
#include "cuda/pageable.h"
#include "cuda/pool.h"
#include "cuda/resident.h"
#include "cuda/row_copies.h"
#include "cuda/strided_copy.h"
#include "pack/parts.h"

#include <stdlib.h>
#include <string.h>

static uint64_t address_of(const void *pointer)
{
    return (uintptr_t)pointer;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static int table_hook(void *context, const tempi_table *table, bool variable,
                      tempi_device_table *out)
{
    return tempi_cuda_table_get(context, table, variable, out);
}

/* Whether all of the kernel's accesses cross the bus, which needs only some blocks. */
static bool is_over_bus(const tempi_cuda_batch *batch)
{
    return batch->over_bus && batch->nitems > 0;
}

static bool is_whole(const tempi_cuda_batch *batch, const tempi_launch *what)
{
    const tempi_cuda_device *device = batch->device;
    return !is_over_bus(batch) &&
           tempi_launch_is_whole(what, device->resident_blocks[what->kernel], device->cache);
}

/* The planner's grid, or the blocks that run at a time: kernels do the rest in steps of the grid.
 */
static unsigned grid_of(const tempi_cuda_batch *batch, const tempi_launch *what, bool whole)
{
    const unsigned most = batch->device->resident_blocks[what->kernel];
    const int64_t bus = is_over_bus(batch) ? tempi_config.oneshot_blocks : 0;
    const unsigned grid = most > 0 && most < what->grid ? most : what->grid;
    if (whole)
        return what->whole;
    return bus > 0 && bus < grid ? (unsigned)bus : grid;
}

static int launch(tempi_cuda_batch *batch, tempi_launch *what, bool flagged)
{
    tempi_cuda_function function;
    uint64_t done[TEMPI_LAUNCH_DONE_PARAMS] = {0, 0};
    void *params[TEMPI_LAUNCH_PARAMS + TEMPI_LAUNCH_DONE_PARAMS];
    const int status = tempi_cuda_function_get(batch->device, what->kernel, &function);
    if (status != TEMPI_OK)
        return status;
    /* Each block would count itself; of so many, the stream writes the flag. */
    const bool whole = is_whole(batch, what);
    flagged = flagged && !whole;
    if (flagged)
        batch->flag = tempi_cuda_flag_for_kernel(batch->device, &done[0], &done[1]);
    for (int i = 0; i < what->nparams; ++i)
        params[i] = &what->params[i];
    for (int i = 0; i < TEMPI_LAUNCH_DONE_PARAMS; ++i)
        params[what->nparams + i] = &done[i];
    tempi_stat_add(TEMPI_STAT_launches, 1);
    const int launched = TEMPI_CU(LaunchKernel, function, grid_of(batch, what, whole), 1, 1,
                                  what->block, 1, 1, what->shared, batch->stream, params, NULL);
    if (launched != TEMPI_OK && flagged)
        tempi_cuda_batch_unflag(batch);
    return launched;
}

/* Puts the descriptors into pinned memory that the batch returns when it is done: a copy may read
 * its source as late as it runs. (From pageable memory, too: CUDA driver API, "API synchronization
 * behavior": such copies "might be synchronous".) NULL: out of memory. */
static void *pin_descriptors(tempi_cuda_batch *batch)
{
    const tempi_plan *plan = &batch->plan;
    void *pinned = tempi_cuda_batch_pinned(batch, (int64_t)plan->nbytes);
    if (pinned)
        memcpy(pinned, plan->bytes, plan->nbytes);
    return pinned;
}

/* Device memory with the descriptors; if there is none, the kernels read the pinned ones. */
static int place_descriptors(tempi_cuda_batch *batch, uint64_t *out)
{
    const tempi_plan *plan = &batch->plan;
    tempi_cuda_device *device = batch->device;
    const int direction = batch->direction;
    if (batch->resident < 0)
        *out = tempi_cuda_resident_find(device, direction, plan->bytes, plan->nbytes, batch->stream,
                                        &batch->resident);
    if (*out)
        return TEMPI_OK;
    const void *pinned = pin_descriptors(batch);
    if (!pinned)
        return TEMPI_ERR_MEMORY;
    *out = address_of(pinned);
    int which = -1;
    const uint64_t there = batch->resident < 0
                               ? tempi_cuda_resident_add(device, direction, plan->bytes,
                                                         plan->nbytes, batch->stream, &which)
                               : (uintptr_t)tempi_cuda_batch_buffer(batch, (int64_t)plan->nbytes);
    if (!there)
        return TEMPI_OK;
    *out = there;
    const int status = TEMPI_CU(MemcpyAsync, there, address_of(pinned), plan->nbytes,
                                batch->stream);
    if (which >= 0 && status == TEMPI_OK)
        batch->resident = which;
    else if (which >= 0)
        tempi_cuda_resident_release(device, direction, which, false);
    return status;
}

static int upload_descriptors(tempi_cuda_batch *batch)
{
    uint64_t there = 0;
    if (batch->plan.nbytes == 0)
        return TEMPI_OK;
    const int status = place_descriptors(batch, &there);
    if (status == TEMPI_OK)
        tempi_cuda_plan_patch(&batch->plan, there);
    return status;
}

int tempi_cuda_batch_repeat(tempi_cuda_batch *batch)
{
    const tempi_plan *plan = &batch->plan;
    int status = TEMPI_OK;
    for (int i = 0; i < plan->ncopies && status == TEMPI_OK; ++i)
        status = tempi_cuda_copy_planned(batch->stream, &plan->copies[i]);
    for (int i = 0; i < plan->nlaunches && status == TEMPI_OK; ++i)
        status = launch(batch, &plan->launches[i], batch->flag_last && i == plan->nlaunches - 1);
    return status;
}

static tempi_plan_hooks hooks_of(tempi_cuda_device *device)
{
    return (tempi_plan_hooks){.context = device,
                              .table = table_hook,
                              .multiprocessors = device->multiprocessors,
                              .kernels = device->kernels_tried &&
                                         device->kernels_status == TEMPI_OK};
}

static int put_plan(tempi_cuda_batch *batch)
{
    const int status = upload_descriptors(batch);
    return status == TEMPI_OK ? tempi_cuda_batch_repeat(batch) : status;
}

/* Only what crosses the bus is copied. */
static int64_t copied_rows(const tempi_cuda_batch *batch)
{
    if (!is_over_bus(batch))
        return 0;
    return batch->copied_rows >= 0 ? batch->copied_rows : tempi_cuda_copied_rows(batch->device);
}

int tempi_cuda_batch_plan(tempi_cuda_batch *batch, const tempi_op *ops, int n)
{
    tempi_plan_hooks hooks = hooks_of(batch->device);
    hooks.copied_rows = copied_rows(batch);
    return tempi_cuda_plan(ops, n, &hooks, &batch->plan);
}

static int run_plan(tempi_cuda_batch *batch, const tempi_op *ops, int n)
{
    if (n == 0)
        return TEMPI_OK;
    const int status = tempi_cuda_batch_plan(batch, ops, n);
    return status == TEMPI_OK ? put_plan(batch) : status;
}

int tempi_cuda_move_plans(tempi_cuda_device *device, const tempi_op *op)
{
    const tempi_side src = tempi_side_of(op), dst = tempi_side_of(op->into);
    tempi_plan plan = {0};
    int status = tempi_cuda_kernels_ready(device);
    if (status != TEMPI_OK || tempi_move_pair_is_known(op))
        return status;
    const tempi_plan_hooks hooks = hooks_of(device);
    status = tempi_cuda_plan_strided(&src, &dst, op->n, &hooks, &plan);
    if (status == TEMPI_OK)
        tempi_move_pair_note(op);
    tempi_cuda_plan_free(&plan);
    return status;
}

int tempi_cuda_batch_move(tempi_cuda_batch *batch, const tempi_side *src, const tempi_side *dst,
                          int64_t n)
{
    const tempi_plan_hooks hooks = hooks_of(batch->device);
    const int status = tempi_cuda_plan_strided(src, dst, n, &hooks, &batch->plan);
    return status == TEMPI_OK ? put_plan(batch) : status;
}

/* Those that were planned before are not planned again. */
static int run_burst(tempi_cuda_batch *batch, const tempi_op *ops, int n)
{
    if (tempi_cuda_resident_recall(batch, ops, n))
        return tempi_cuda_batch_repeat(batch);
    const bool first = batch->resident < 0; /* else its descriptors are in a buffer of the batch */
    const int status = run_plan(batch, ops, n);
    if (status == TEMPI_OK && first)
        tempi_cuda_resident_remember(batch, ops, n);
    return status;
}

static int run_whole(tempi_cuda_batch *batch)
{
    tempi_op *ops = malloc((size_t)batch->nitems * sizeof *ops);
    int n = 0;
    if (!ops)
        return TEMPI_ERR_MEMORY;
    for (int i = 0; i < batch->nitems; ++i)
        if (batch->items[i].piece == 0)
            ops[n++] = batch->items[i].op;
    const int status = run_burst(batch, ops, n);
    free(ops);
    return status;
}

/* ---- staged ---------------------------------------------------------------------------------- */

/* A copy of packed bytes between a device buffer and the host. If the layout covers only some of
 * them, the rest of the host's buffer belongs to others and is skipped. */
typedef struct move {
    tempi_copy_list *list; /* NULL: it is enqueued at once */
    tempi_cuda_stream stream;
    uint64_t host, device; /* of packed byte `first` */
    int64_t first;
    bool packs;
} move;

static int move_segment(void *context, int64_t first, int64_t n)
{
    const move *m = context;
    const uint64_t at = (uint64_t)(first - m->first);
    const uint64_t dst = (m->packs ? m->host : m->device) + at,
                   src = (m->packs ? m->device : m->host) + at;
    return m->list ? tempi_copy_list_add(m->list, dst, src, n)
                   : tempi_cuda_copy(m->stream, dst, src, n);
}

static int move_packed(const tempi_op *op, int64_t n, move *m)
{
    return op->partial ? tempi_segments_visit(op->layout, m->first, n, move_segment, m)
                       : move_segment(m, m->first, n);
}

static int list_staged(tempi_cuda_batch *batch, tempi_copy_list *list)
{
    int status = TEMPI_OK;
    for (int i = 0; i < batch->nitems && status == TEMPI_OK; ++i) {
        const tempi_cuda_item *item = &batch->items[i];
        if (!item->host || item->piece)
            continue;
        move m = {.list = list,
                  .host = address_of(item->host),
                  .device = address_of(item->buffer),
                  .first = item->op.first,
                  .packs = batch->direction == TEMPI_PACK};
        status = move_packed(&item->op, item->op.n, &m);
    }
    return status;
}

static int move_staged(tempi_cuda_batch *batch)
{
    tempi_copy_list list = {.n = 0};
    int status = list_staged(batch, &list);
    if (status == TEMPI_OK)
        status = tempi_copy_list_run(&list, batch->stream);
    tempi_copy_list_free(&list);
    return status;
}

/* ---- pipelined ------------------------------------------------------------------------------- */

enum { SLOTS = 4 };

/* A pipelined item in progress. Each slot has an event, recorded when its second user is done. */
typedef struct pipe {
    tempi_cuda_batch *batch;
    const tempi_cuda_item *item;
    tempi_cuda_stream stream, copies;
    tempi_cuda_event handed, freed[SLOTS];
} pipe;

static int hand_over(tempi_cuda_event event, tempi_cuda_stream from, tempi_cuda_stream to)
{
    const int status = TEMPI_CU(EventRecord, event, from);
    return status == TEMPI_OK ? TEMPI_CU(StreamWaitEvent, to, event, 0) : status;
}

static int run_piece(const pipe *p, int64_t k, char *slot)
{
    tempi_op op = p->item->op;
    const int64_t at = k * p->item->piece;
    op.first += at;
    op.n = op.n - at < p->item->piece ? op.n - at : p->item->piece;
    op.packed = slot;
    return run_plan(p->batch, &op, 1);
}

static int copy_piece(const pipe *p, int64_t k, char *slot)
{
    const int64_t at = k * p->item->piece, left = p->item->op.n - at;
    const int64_t n = left < p->item->piece ? left : p->item->piece;
    move m = {.stream = p->copies,
              .host = address_of(p->item->host) + (uint64_t)at,
              .device = address_of(slot),
              .first = p->item->op.first + at,
              .packs = p->batch->direction == TEMPI_PACK};
    return move_packed(&p->item->op, n, &m);
}

/* The first user fills the slot and hands it to the second, which frees it for the piece SLOTS
 * later. */
static int piece(const pipe *p, int64_t k)
{
    const int s = (int)(k % p->item->slots);
    char *slot = (char *)p->item->buffer + s * p->item->piece;
    const bool packs = p->batch->direction == TEMPI_PACK;
    const tempi_cuda_stream first = packs ? p->stream : p->copies,
                            second = packs ? p->copies : p->stream;
    int status = TEMPI_OK;
    if (k >= p->item->slots)
        status = TEMPI_CU(StreamWaitEvent, first, p->freed[s], 0);
    if (status == TEMPI_OK)
        status = packs ? run_piece(p, k, slot) : copy_piece(p, k, slot);
    if (status == TEMPI_OK)
        status = hand_over(p->handed, first, second);
    if (status == TEMPI_OK)
        status = packs ? copy_piece(p, k, slot) : run_piece(p, k, slot);
    if (status == TEMPI_OK)
        status = TEMPI_CU(EventRecord, p->freed[s], second);
    return status;
}

static int all_pieces(const pipe *p)
{
    const int64_t pieces = (p->item->op.n + p->item->piece - 1) / p->item->piece;
    int status = TEMPI_OK;
    for (int64_t k = 0; k < pieces && status == TEMPI_OK; ++k)
        status = piece(p, k);
    /* The batch's event is recorded in the stream, so the stream must wait for the last copy. */
    return status == TEMPI_OK ? hand_over(p->handed, p->copies, p->stream) : status;
}

static int run_pipelined(tempi_cuda_batch *batch, const tempi_cuda_item *item)
{
    tempi_cuda_device *device = batch->device;
    pipe p = {.batch = batch,
              .item = item,
              .stream = batch->stream,
              .copies = device->copy_streams[batch->direction]};
    int status = tempi_cuda_event_get(device, &p.handed);
    for (int s = 0; s < item->slots && status == TEMPI_OK; ++s)
        status = tempi_cuda_event_get(device, &p.freed[s]);
    if (status == TEMPI_OK)
        status = all_pieces(&p);
    for (int s = 0; s < item->slots; ++s)
        tempi_cuda_event_put(device, p.freed[s]);
    tempi_cuda_event_put(device, p.handed);
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Whether something is enqueued behind the plan of the whole items. */
static bool has_more(const tempi_cuda_batch *batch)
{
    for (int i = 0; i < batch->nitems; ++i)
        if (batch->items[i].piece || (batch->items[i].host && batch->direction == TEMPI_PACK))
            return true;
    return false;
}

int tempi_cuda_batch_enqueue(tempi_cuda_batch *batch)
{
    const bool packs = batch->direction == TEMPI_PACK;
    batch->flag_last = batch->flag_wanted && !has_more(batch);
    int status = packs ? TEMPI_OK : move_staged(batch);
    if (status == TEMPI_OK)
        status = run_whole(batch);
    if (status == TEMPI_OK && packs)
        status = move_staged(batch);
    for (int i = 0; i < batch->nitems && status == TEMPI_OK; ++i)
        if (batch->items[i].piece && !batch->items[i].pageable)
            status = run_pipelined(batch, &batch->items[i]);
    return status == TEMPI_OK ? tempi_cuda_pageable_start(batch) : status;
}
