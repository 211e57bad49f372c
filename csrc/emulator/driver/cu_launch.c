/* cu_launch.c: functions of modules, and launching them. */
#include "emulator/driver/cu_module.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { THREADS = 1024, SHARED_OPT_IN = 232448, PER_SM_THREADS = 2048, PER_SM_BLOCKS = 32 };

static CUresult enter(tempi_emu_function function, CUfunction entry, tempi_emu_context **context)
{
    const CUresult result = tempi_emu_enter(function, EMU_CONTEXT, context);
    if (result != CUDA_SUCCESS)
        return result;
    return tempi_emu_entry_known(entry) ? CUDA_SUCCESS : tempi_emu_leave(CUDA_ERROR_INVALID_HANDLE);
}

static uint32_t most_threads(const tempi_ptx_kernel *kernel)
{
    return kernel->max_threads != 0 ? kernel->max_threads : THREADS;
}

/* ---- launching ------------------------------------------------------------------------------- */

static CUresult run(tempi_emu_op *op)
{
    const tempi_emu_launch *const launch = (const tempi_emu_launch *)(void *)op->payload;
    atomic_fetch_add(&tempi_emu_launches, 1);
    return tempi_emu_grid_run(launch);
}

static void drop(tempi_emu_op *op)
{
    free(((tempi_emu_launch *)(void *)op->payload)->param);
}

static bool in_bounds(const tempi_emu_launch *l, const struct tempi_emu_entry *entry)
{
    const uint64_t threads = (uint64_t)l->block[0] * l->block[1] * l->block[2];
    return l->grid[0] > 0 && l->grid[1] > 0 && l->grid[2] > 0 && threads > 0 &&
           l->grid[0] <= INT32_MAX && l->grid[1] <= 65535 && l->grid[2] <= 65535 &&
           l->block[0] <= THREADS && l->block[1] <= THREADS && l->block[2] <= 64 &&
           threads <= most_threads(entry->kernel) &&
           l->dynamic_shared <= (uint32_t)entry->dynamic_shared;
}

/* Copies the parameters: the caller's may be gone when the kernel runs. */
static CUresult take_params(const tempi_ptx_kernel *kernel, void **params, void **extra,
                            uint8_t **taken)
{
    uint8_t *const made = calloc(1, kernel->param_size + 1);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *taken = made;
    if (params != NULL) {
        for (uint32_t i = 0; i < kernel->params; i++)
            memcpy(made + kernel->param_offsets[i], params[i], kernel->param_sizes[i]);
        return CUDA_SUCCESS;
    }
    if (extra == NULL)
        return kernel->params == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    /* 1: the buffer, 2: its size, 0: the end */
    const void *buffer = NULL;
    size_t size = 0;
    for (; *extra != NULL; extra += 2) {
        if ((uintptr_t)extra[0] == 1)
            buffer = extra[1];
        else if ((uintptr_t)extra[0] == 2)
            memcpy(&size, extra[1], sizeof size);
    }
    if (buffer == NULL || size < kernel->param_size)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(made, buffer, kernel->param_size);
    return CUDA_SUCCESS;
}

static CUresult launch(tempi_emu_context *context, CUfunction entry, tempi_emu_launch made,
                       CUstream handle, void **params, void **extra)
{
    tempi_emu_stream *stream;
    CUresult result = tempi_emu_stream_of(context, handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (stream->context != context || entry->module->context != context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!in_bounds(&made, entry) || (params != NULL && extra != NULL))
        return CUDA_ERROR_INVALID_VALUE;
    result = take_params(entry->kernel, params, extra, &made.param);
    if (result != CUDA_SUCCESS)
        goto release;
    made.kernel = entry->kernel;
    made.context = context;
    made.variables = entry->module->variables;
    made.seed = tempi_emu_random();
    tempi_emu_op *const op = tempi_emu_op_new(stream, sizeof made, run);
    if (op == NULL) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
        goto release;
    }
    memcpy(op->payload, &made, sizeof made);
    op->drop = drop;
    return tempi_emu_submit(op);

release:
    free(made.param);
    return result;
}

CUresult TEMPI_EMU_API cuLaunchKernel(CUfunction entry, unsigned gx, unsigned gy, unsigned gz,
                                      unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                      CUstream stream, void **params, void **extra);
CUresult TEMPI_EMU_API cuLaunchKernel(CUfunction entry, unsigned gx, unsigned gy, unsigned gz,
                                      unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                      CUstream stream, void **params, void **extra)
{
    tempi_emu_context *context;
    const CUresult result = enter(EMU_cuLaunchKernel, entry, &context);
    if (result != CUDA_SUCCESS)
        return result;
    const tempi_emu_launch made = {
        .grid = {gx, gy, gz},
        .block = {bx, by, bz},
        .dynamic_shared = shared,
    };
    return tempi_emu_leave(launch(context, entry, made, stream, params, extra));
}

/* "Loads a function": without effect on one that is loaded (cuFuncLoad). */
CUresult TEMPI_EMU_API cuFuncLoad(CUfunction entry);
CUresult TEMPI_EMU_API cuFuncLoad(CUfunction entry)
{
    const CUresult result = enter(EMU_cuFuncLoad, entry, NULL);
    return result != CUDA_SUCCESS ? result : tempi_emu_leave(CUDA_SUCCESS);
}

/* As for kernels of 64 registers a thread, of which a multiprocessor has 65536 (CUDA Programming
 * Guide, "Compute Capabilities"). */
CUresult TEMPI_EMU_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction entry,
                                                                   int block, size_t shared);
CUresult TEMPI_EMU_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction entry,
                                                                   int block, size_t shared)
{
    enum { REGISTERS = 65536, A_THREAD = 64 };
    (void)shared;
    const CUresult result = enter(EMU_cuOccupancyMaxActiveBlocksPerMultiprocessor, entry, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (blocks == NULL || block <= 0 || (uint32_t)block > most_threads(entry->kernel))
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    *blocks = REGISTERS / (A_THREAD * block) < PER_SM_BLOCKS ? REGISTERS / (A_THREAD * block)
                                                             : PER_SM_BLOCKS;
    return tempi_emu_leave(CUDA_SUCCESS);
}
