#include "cuda/row_copies.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/stats.h"
#include "cuda/pool.h"
#include "datatype/layout.h"

enum {
    RUN = 64, /* bytes */
    FEW = 16,
    MANY = 1024, /* rows */
    TURNS = 6,
    MOST = 4096
};
#define MARGIN 0.05

/* Rows every two runs; NULL: no memory. */
static const tempi_layout *rows_of(int64_t n)
{
    tempi_layout *run, *rows = NULL;
    const tempi_layout *made = NULL;
    if (tempi_layout_bytes(RUN, &run) != TEMPI_OK)
        return NULL;
    if (tempi_layout_hvector(n, 1, 2 * RUN, run, &rows) == TEMPI_OK &&
        tempi_layout_canonical(rows, NULL, NULL, &made) != TEMPI_OK)
        made = NULL;
    tempi_layout_free(run);
    if (rows)
        tempi_layout_free(rows);
    return made;
}

/* Packs once, by copies if `copies`; false: it failed. The caller has entered the device. */
static bool pack(tempi_cuda_device *device, const tempi_op *op, bool copies)
{
    tempi_cuda_batch *batch = tempi_cuda_batch_new(device, TEMPI_PACK);
    if (!batch || !tempi_cuda_batch_reserve(batch, 1)) {
        tempi_cuda_batch_release(batch);
        return false;
    }
    tempi_cuda_batch_add(batch, &(tempi_cuda_item){.op = *op});
    batch->copied_rows = copies ? MOST : 0;
    batch->flag_wanted = true;
    atomic_store(&batch->state, TEMPI_BATCH_LAUNCHING);
    tempi_cuda_batch_fly(batch, tempi_cuda_batch_enqueue(batch));
    tempi_cuda_batch_wait(batch);
    const bool good = batch->status == TEMPI_OK;
    if (good) /* it is no message */
        tempi_stat_add(copies ? TEMPI_STAT_device_copies : TEMPI_STAT_launches, -1);
    if (good && copies)
        tempi_stat_add(TEMPI_STAT_device_copied_bytes, -op->n);
    tempi_cuda_batch_release(batch);
    return good;
}

/* The least of several times, the first of which loads and warms; negative: it failed. */
static double least_time(tempi_cuda_device *device, const tempi_op *op, bool copies)
{
    double least = -1;
    for (int i = 0; i <= TURNS; ++i) {
        const double start = tempi_clock();
        if (!pack(device, op, copies))
            return -1;
        const double taken = tempi_clock() - start;
        if (i == 1 || (i > 1 && taken < least))
            least = taken;
    }
    return least;
}

int64_t tempi_cuda_rows_by(double kernel, double few_rows, double many_rows)
{
    const double limit = (1 - MARGIN) * kernel, row = (many_rows - few_rows) / (MANY - FEW);
    if (few_rows >= limit)
        return 0;
    if (row <= 0 || (limit - few_rows) / row >= MOST - FEW)
        return MOST;
    return FEW + (int64_t)((limit - few_rows) / row);
}

/* The device packs those rows into pinned memory. */
static int64_t measure(tempi_cuda_device *device, tempi_op *few, tempi_op *many)
{
    tempi_cuda_entry entry;
    if (tempi_cuda_enter(device, &entry) != TEMPI_OK)
        return 0;
    const double kernel = least_time(device, many, false);
    const double copies = kernel > 0 ? least_time(device, few, true) : -1;
    const double all = copies > 0 ? least_time(device, many, true) : -1;
    tempi_cuda_leave(&entry);
    return all > 0 ? tempi_cuda_rows_by(kernel, copies, all) : 0;
}

static tempi_op op_of(const tempi_cuda_device *device, const tempi_layout *layout, void *mem,
                      void *packed)
{
    return (tempi_op){.layout = layout,
                      .count = 1,
                      .mem = mem,
                      .packed = packed,
                      .n = layout->size,
                      .direction = TEMPI_PACK,
                      .method = TEMPI_METHOD_ONE_SHOT,
                      .device = device->slot,
                      .stream = TEMPI_CUDA_ORDERED};
}

static int64_t find_out(tempi_cuda_device *device)
{
    const tempi_layout *few = rows_of(FEW), *many = rows_of(MANY);
    void *mem = tempi_cuda_buffer_get(device->slot, 2 * RUN * MANY);
    void *packed = tempi_cuda_pinned_some(device->slot, RUN * MANY);
    int64_t rows = 0;
    if (few && many && mem && packed) {
        tempi_op few_op = op_of(device, few, mem, packed),
                 many_op = op_of(device, many, mem, packed);
        rows = measure(device, &few_op, &many_op);
    }
    if (packed)
        (void)tempi_cuda_pool_put(packed);
    if (mem)
        (void)tempi_cuda_pool_put(mem);
    tempi_layout_release(few);
    tempi_layout_release(many);
    return rows;
}

/* The rows of a matrix, at one distance; 0: it is none. */
static int64_t rows_of_op(const tempi_op *op)
{
    const tempi_layout *layout = op->layout;
    const tempi_box *box = layout->boxes;
    if (layout->nboxes != 1 || box->table || box->ndims + (op->count > 1) != 1)
        return 0;
    return box->ndims == 1 ? box->dims[0].count : op->count;
}

void tempi_cuda_rows_settle(tempi_cuda_device *device, const tempi_op *op)
{
    int64_t unknown = TEMPI_ROWS_UNKNOWN;
    if (tempi_config.copy_rows >= 0 || tempi_cuda_emulated() || !tempi_cu.Memcpy2DAsync ||
        rows_of_op(op) == 0 || !atomic_compare_exchange_strong(&device->copied_rows, &unknown, 0))
        return;
    atomic_store(&device->copied_rows, find_out(device));
}

bool tempi_cuda_has_few_rows(const tempi_op *op)
{
    const int64_t rows = rows_of_op(op);
    tempi_cuda_device *device = rows > 0 ? tempi_cuda_device_get(op->device) : NULL;
    if (!device || tempi_cuda_kernels_ready(device) != TEMPI_OK)
        return false;
    tempi_cuda_rows_settle(device, op);
    return rows <= tempi_cuda_copied_rows(device);
}

int64_t tempi_cuda_copied_rows(tempi_cuda_device *device)
{
    if (!tempi_cu.Memcpy2DAsync)
        return 0;
    const int64_t known = atomic_load_explicit(&device->copied_rows, memory_order_relaxed);
    return tempi_config.copy_rows >= 0 ? tempi_config.copy_rows : known > 0 ? known : 0;
}
