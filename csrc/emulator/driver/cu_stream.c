/* cu_stream.c: the driver's stream functions. */
#include "emulator/core/emulator.h"

CUresult TEMPI_EMU_API cuStreamCreate(CUstream *stream, unsigned flags);
CUresult TEMPI_EMU_API cuStreamCreate(CUstream *stream, unsigned flags)
{
    tempi_emu_context *context;
    const CUresult result = tempi_emu_enter(EMU_cuStreamCreate, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (stream == NULL || flags > CU_STREAM_NON_BLOCKING)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    tempi_emu_stream *const made = tempi_emu_stream_new(context, flags);
    if (made == NULL)
        return tempi_emu_leave(CUDA_ERROR_OUT_OF_MEMORY);
    *stream = made;
    return tempi_emu_leave(CUDA_SUCCESS);
}

enum { GREATEST_PRIORITY = -5 }; /* lower numbers are higher */

CUresult TEMPI_EMU_API cuCtxGetStreamPriorityRange(int *least, int *greatest);
CUresult TEMPI_EMU_API cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    const CUresult result = tempi_emu_enter(EMU_cuCtxGetStreamPriorityRange, EMU_CONTEXT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (least != NULL)
        *least = 0;
    if (greatest != NULL)
        *greatest = GREATEST_PRIORITY;
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority);
CUresult TEMPI_EMU_API cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    tempi_emu_context *context;
    const CUresult result = tempi_emu_enter(EMU_cuStreamCreateWithPriority, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (stream == NULL || flags > CU_STREAM_NON_BLOCKING)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    tempi_emu_stream *const made = tempi_emu_stream_new(context, flags);
    if (made == NULL)
        return tempi_emu_leave(CUDA_ERROR_OUT_OF_MEMORY);
    /* Outside the range it is clamped to it (cuStreamCreateWithPriority). */
    made->priority = priority > 0 ? 0 : priority < GREATEST_PRIORITY ? GREATEST_PRIORITY : priority;
    *stream = made;
    return tempi_emu_leave(CUDA_SUCCESS);
}

/* Enters, and finds the stream of a handle. */
static CUresult enter(tempi_emu_function function, CUstream handle, tempi_emu_stream **stream)
{
    tempi_emu_context *context;
    CUresult result = tempi_emu_enter(function, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    result = tempi_emu_stream_of(context, handle, stream);
    return result == CUDA_SUCCESS ? result : tempi_emu_leave(result);
}

/* Queued work still runs. */
CUresult TEMPI_EMU_API cuStreamDestroy_v2(CUstream handle);
CUresult TEMPI_EMU_API cuStreamDestroy_v2(CUstream handle)
{
    tempi_emu_stream *stream;
    const CUresult result = enter(EMU_cuStreamDestroy_v2, handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if ((uintptr_t)handle <= 2)
        return tempi_emu_leave(CUDA_ERROR_INVALID_HANDLE);
    stream->destroyed = true;
    tempi_emu_stream_drop(stream);
    return tempi_emu_leave(CUDA_SUCCESS);
}

/* A query of the legacy default stream covers all streams that it waits for. */
static bool finished(tempi_emu_stream *stream)
{
    bool all = true;
    for (tempi_emu_stream *s = tempi_emu_streams(); s != NULL; s = s->next) {
        const bool asked = s == stream ||
                           (stream == stream->context->legacy && s->context == stream->context &&
                            (s->flags & CU_STREAM_NON_BLOCKING) == 0);
        if (!asked || s->completed == s->submitted)
            continue;
        tempi_emu_ask((tempi_emu_point){s, s->submitted});
        all = false;
    }
    return all;
}

CUresult TEMPI_EMU_API cuStreamQuery(CUstream handle);
CUresult TEMPI_EMU_API cuStreamQuery(CUstream handle)
{
    tempi_emu_stream *stream;
    const CUresult result = enter(EMU_cuStreamQuery, handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (stream->capture != NULL)
        return tempi_emu_leave(tempi_emu_capture_spoil(stream));
    return tempi_emu_leave(finished(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

CUresult TEMPI_EMU_API cuStreamSynchronize(CUstream handle);
CUresult TEMPI_EMU_API cuStreamSynchronize(CUstream handle)
{
    tempi_emu_stream *stream;
    CUresult result = enter(EMU_cuStreamSynchronize, handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (stream->capture != NULL)
        return tempi_emu_leave(tempi_emu_capture_spoil(stream));
    if (stream == stream->context->legacy) {
        /* An empty operation follows all work that the default stream waits for. */
        tempi_emu_op *const op = tempi_emu_op_new(stream, 0, NULL);
        result = op == NULL ? CUDA_ERROR_OUT_OF_MEMORY : tempi_emu_submit(op);
    }
    if (result == CUDA_SUCCESS)
        result = tempi_emu_drive((tempi_emu_point){stream, stream->submitted});
    return tempi_emu_leave(result);
}

CUresult TEMPI_EMU_API cuStreamGetPriority(CUstream handle, int *priority);
CUresult TEMPI_EMU_API cuStreamGetPriority(CUstream handle, int *priority)
{
    tempi_emu_stream *stream;
    const CUresult result = enter(EMU_cuStreamGetPriority, handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    *priority = stream->priority;
    return tempi_emu_leave(CUDA_SUCCESS);
}

typedef struct {
    uint32_t *word;
    uint32_t value;
} word_write;

static CUresult write_word(tempi_emu_op *op)
{
    const word_write *const made = (const word_write *)(void *)op->payload;
    __atomic_store_n(made->word, made->value, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}

/* By default the write is preceded by a system-wide memory fence (cuStreamWriteValue32); the
 * address is aligned to 4 bytes and known to the driver. */
CUresult TEMPI_EMU_API cuStreamWriteValue32_v2(CUstream handle, CUdeviceptr address, uint32_t value,
                                               unsigned flags);
CUresult TEMPI_EMU_API cuStreamWriteValue32_v2(CUstream handle, CUdeviceptr address, uint32_t value,
                                               unsigned flags)
{
    tempi_emu_stream *stream;
    const CUresult result = enter(EMU_cuStreamWriteValue32_v2, handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    const tempi_emu_range *const range = tempi_emu_range_find(address);
    if (range == NULL || address % sizeof value != 0 || flags > 1)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    tempi_emu_op *const op = tempi_emu_op_new(stream, sizeof(word_write), write_word);
    if (op == NULL)
        return tempi_emu_leave(CUDA_ERROR_OUT_OF_MEMORY);
    const word_write made = {(uint32_t *)(void *)(range->bytes + (address - range->base)), value};
    memcpy(op->payload, &made, sizeof made);
    return tempi_emu_leave(tempi_emu_submit(op));
}

typedef struct {
    CUhostFn function;
    void *argument;
} callback;

static CUresult call(tempi_emu_op *op)
{
    const callback *const made = (const callback *)(void *)op->payload;
    tempi_emu_in_callback = true;
    made->function(made->argument);
    tempi_emu_in_callback = false;
    return CUDA_SUCCESS;
}

CUresult TEMPI_EMU_API cuLaunchHostFunc(CUstream handle, CUhostFn function, void *argument);
CUresult TEMPI_EMU_API cuLaunchHostFunc(CUstream handle, CUhostFn function, void *argument)
{
    tempi_emu_stream *stream;
    const CUresult result = enter(EMU_cuLaunchHostFunc, handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (function == NULL)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    tempi_emu_op *const op = tempi_emu_op_new(stream, sizeof(callback), call);
    if (op == NULL)
        return tempi_emu_leave(CUDA_ERROR_OUT_OF_MEMORY);
    const callback made = {function, argument};
    memcpy(op->payload, &made, sizeof made);
    op->callback = true;
    return tempi_emu_leave(tempi_emu_submit(op));
}
