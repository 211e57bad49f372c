/* prepare.c: makes an operation ready for its launch: its buffers, its kernels, its tables. */
#include "base/stats.h"
#include "cuda/batch.h"
#include "cuda/offset_tables.h"
#include "cuda/pageable.h"
#include "cuda/pool.h"
#include "cuda/row_copies.h"

enum { PIECE = TEMPI_PIECE, PIECE_SMALLEST = 64 << 10, PIECE_SLOTS = 4 };

static bool is_one_run(const tempi_op *op)
{
    const tempi_layout *layout = op->layout;
    return layout->dense || (op->count == 1 && layout->nboxes == 1 && layout->boxes[0].ndims == 0 &&
                             !layout->boxes[0].table);
}

/* Loads kernels and tables, so that a later launch needs only the driver. */
static int ready_for_kernels(tempi_cuda_device *device, const tempi_layout *layout)
{
    int status = tempi_cuda_kernels_ready(device);
    for (int i = 0; i < layout->nboxes && status == TEMPI_OK; ++i) {
        const tempi_box *box = &layout->boxes[i];
        tempi_device_table there;
        if (box->table)
            status = tempi_cuda_table_get(device, box->table, box->run == 0, &there);
    }
    return status;
}

static int prepare_pipelined(tempi_cuda_item *item)
{
    const int64_t pieces = (item->op.n + PIECE - 1) / PIECE;
    const int slots = pieces < PIECE_SLOTS ? (int)pieces : PIECE_SLOTS;
    for (int64_t piece = PIECE; piece >= PIECE_SMALLEST; piece /= 2) {
        item->buffer = tempi_cuda_buffer_get(item->op.device, piece * slots);
        if (!item->buffer)
            continue;
        item->piece = piece;
        item->slots = slots;
        return TEMPI_OK;
    }
    return TEMPI_ERR_MEMORY;
}

/* In one piece if the message is short, or if the method is staged and memory suffices; else in
 * pieces. */
static int prepare_staged(tempi_cuda_item *item)
{
    item->host = item->op.packed;
    if (item->op.method == TEMPI_METHOD_STAGED || item->op.n <= PIECE)
        item->buffer = tempi_cuda_buffer_get(item->op.device, item->op.n);
    if (!item->buffer && prepare_pipelined(item) != TEMPI_OK) {
        /* The kernel accesses pinned memory directly. */
        const bool pinned = tempi_cuda_pool_pinned(item->host);
        item->host = NULL;
        return pinned ? TEMPI_OK : TEMPI_ERR_MEMORY;
    }
    item->op.packed = item->buffer;
    tempi_stat_add(TEMPI_STAT_staged_bytes, item->op.n);
    return TEMPI_OK;
}

/* In a burst kernels do it, if its packed side is in memory that they reach. */
static int prepare_run(tempi_cuda_device *device, tempi_cuda_item *item)
{
    if (!device->kernels_tried)
        (void)tempi_cuda_kernels_ready(device);
    if (item->op.method > TEMPI_METHOD_ONE_SHOT && tempi_cuda_pool_pinned(item->op.packed))
        item->op.method = TEMPI_METHOD_ONE_SHOT;
    return TEMPI_OK;
}

static int prepare(tempi_cuda_device *device, tempi_cuda_item *item)
{
    const tempi_op *op = &item->op;
    if (is_one_run(op)) /* alone it is a copy, which can access any memory */
        return prepare_run(device, item);
    const int status = ready_for_kernels(device, op->layout);
    if (status == TEMPI_OK && op->method == TEMPI_METHOD_ONE_SHOT)
        tempi_cuda_rows_settle(device, op);
    if (status != TEMPI_OK || op->method == TEMPI_METHOD_DEVICE ||
        op->method == TEMPI_METHOD_ONE_SHOT)
        return status;
    return prepare_staged(item);
}

/* Without pinned memory like all others. */
static int prepare_pageable(tempi_cuda_device *device, tempi_cuda_item *item)
{
    const int status = is_one_run(&item->op) ? TEMPI_OK
                                             : ready_for_kernels(device, item->op.layout);
    return status != TEMPI_OK || tempi_cuda_pageable_prepare(item) ? status : prepare(device, item);
}

int tempi_cuda_item_prepare(const tempi_op *op, tempi_cuda_item *item)
{
    tempi_cuda_device *device = tempi_cuda_device_get(op->device);
    *item = (tempi_cuda_item){.op = *op};
    if (!device)
        return TEMPI_ERR_DEVICE;
    if (op->into)
        return tempi_cuda_move_plans(device, op);
    if (tempi_cuda_is_pageable(op))
        return prepare_pageable(device, item);
    return prepare(device, item);
}
