/* cu_capture.c: stream capture. A captured operation never runs: graphs can be counted, not
 * launched. What is refused, and ends a capture, follows the CUDA Programming Guide, "Creating a
 * Graph Using Stream Capture", and the driver API's cuStreamBeginCapture,
 * cuThreadExchangeStreamCaptureMode, cuStreamQuery and cuEventQuery. */
#include "emulator/core/emulator.h"

#include <stdlib.h>

typedef enum { GLOBAL, THREAD_LOCAL, RELAXED } capture_mode;
typedef enum { CAPTURE_NONE, CAPTURE_ACTIVE, CAPTURE_INVALIDATED } capture_status;

struct tempi_emu_capture {
    tempi_emu_capture *next;
    tempi_emu_stream *origin;
    const void *thread;
    capture_mode mode;
    capture_status status;
    size_t nodes;
};

struct tempi_emu_graph {
    size_t nodes;
};

static tempi_emu_capture *captures;      /* not ended */
static _Thread_local int mode_of_thread; /* GLOBAL */
static _Thread_local char thread;

CUresult TEMPI_EMU_API cuThreadExchangeStreamCaptureMode(int *mode);
CUresult TEMPI_EMU_API cuThreadExchangeStreamCaptureMode(int *mode)
{
    const CUresult result = tempi_emu_enter(EMU_cuThreadExchangeStreamCaptureMode, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (mode == NULL || *mode < GLOBAL || *mode > RELAXED)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    const int before = mode_of_thread;
    mode_of_thread = *mode;
    *mode = before;
    return tempi_emu_leave(CUDA_SUCCESS);
}

/* ---- calls that end a capture ---------------------------------------------------------------- */

/* "Potentially unsafe API calls": those that may wait for the device, allocate, free or load. The
 * documentation names cudaMalloc and cudaEventQuery as examples. */
static bool is_unsafe(tempi_emu_function function)
{
    switch (function) {
    case EMU_cuMemAlloc_v2:
    case EMU_cuMemFree_v2:
    case EMU_cuMemAllocManaged:
    case EMU_cuMemHostAlloc:
    case EMU_cuMemFreeHost:
    case EMU_cuMemHostRegister_v2:
    case EMU_cuMemHostUnregister:
    case EMU_cuMemcpy:
    case EMU_cuMemcpyHtoD_v2:
    case EMU_cuMemcpyDtoH_v2:
    case EMU_cuMemcpyDtoD_v2:
    case EMU_cuMemsetD8_v2:
    case EMU_cuCtxSynchronize:
    case EMU_cuStreamSynchronize:
    case EMU_cuStreamQuery:
    case EMU_cuEventQuery:
    case EMU_cuEventSynchronize:
    case EMU_cuStreamCreate:
    case EMU_cuStreamCreateWithPriority:
    case EMU_cuStreamDestroy_v2:
    case EMU_cuModuleLoadData:
    case EMU_cuModuleUnload: return true;
    default: return false;
    }
}

static bool forbids(const tempi_emu_capture *capture)
{
    const bool own = capture->thread == &thread;
    if (mode_of_thread == RELAXED || capture->mode == RELAXED)
        return false;
    return own || (capture->mode == GLOBAL && mode_of_thread == GLOBAL);
}

CUresult tempi_emu_capture_check(tempi_emu_function function)
{
    CUresult result = CUDA_SUCCESS;
    for (tempi_emu_capture *c = captures; c != NULL && is_unsafe(function); c = c->next)
        if (forbids(c)) {
            c->status = CAPTURE_INVALIDATED;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return result;
}

/* The legacy stream stands for all blocking streams of its context. */
CUresult tempi_emu_legacy_use(const tempi_emu_context *context)
{
    CUresult result = CUDA_SUCCESS;
    for (tempi_emu_stream *s = tempi_emu_streams(); s != NULL; s = s->next)
        if (s->capture != NULL && s->context == context &&
            (s->flags & CU_STREAM_NON_BLOCKING) == 0) {
            s->capture->status = CAPTURE_INVALIDATED;
            result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    return result;
}

CUresult tempi_emu_capture_spoil(tempi_emu_stream *stream)
{
    stream->capture->status = CAPTURE_INVALIDATED;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult tempi_emu_capture_wait(tempi_emu_stream *stream, tempi_emu_capture *of)
{
    if (of == NULL) {
        stream->capture->status = CAPTURE_INVALIDATED;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    stream->capture = of;
    return CUDA_SUCCESS;
}

bool tempi_emu_captured(tempi_emu_op *op)
{
    tempi_emu_capture *const capture = op->stream->capture;
    if (capture == NULL)
        return false;
    capture->nodes++;
    tempi_emu_op_free(op);
    return true;
}

/* ---- begin and end --------------------------------------------------------------------------- */

static CUresult enter(tempi_emu_function function, CUstream handle, tempi_emu_stream **stream)
{
    tempi_emu_context *context;
    CUresult result = tempi_emu_enter(function, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    /* The legacy stream cannot be captured. */
    result = (uintptr_t)handle < 2 ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                                   : tempi_emu_stream_of(context, handle, stream);
    return result == CUDA_SUCCESS ? result : tempi_emu_leave(result);
}

CUresult TEMPI_EMU_API cuStreamBeginCapture_v2(CUstream handle, int mode);
CUresult TEMPI_EMU_API cuStreamBeginCapture_v2(CUstream handle, int mode)
{
    tempi_emu_stream *stream;
    const CUresult result = enter(EMU_cuStreamBeginCapture_v2, handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (stream->capture != NULL || mode < GLOBAL || mode > RELAXED)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    tempi_emu_capture *const made = calloc(1, sizeof *made);
    if (made == NULL)
        return tempi_emu_leave(CUDA_ERROR_OUT_OF_MEMORY);
    *made = (tempi_emu_capture){.next = captures,
                                .origin = stream,
                                .thread = &thread,
                                .mode = (capture_mode)mode,
                                .status = CAPTURE_ACTIVE};
    captures = stream->capture = made;
    return tempi_emu_leave(CUDA_SUCCESS);
}

/* Ends the capture in all streams; the number of those that had joined it. */
static int leave_capture(const tempi_emu_capture *capture)
{
    int joined = 0;
    for (tempi_emu_stream *s = tempi_emu_streams(); s != NULL; s = s->next)
        if (s->capture == capture) {
            s->capture = NULL;
            joined += s != capture->origin;
        }
    tempi_emu_capture **place = &captures;
    while (*place != capture)
        place = &(*place)->next;
    *place = capture->next;
    return joined;
}

void tempi_emu_captures_end(const tempi_emu_context *context)
{
    for (tempi_emu_capture *c = captures, *next; c != NULL; c = next) {
        next = c->next;
        if (c->origin->context == context) {
            (void)leave_capture(c);
            free(c);
        }
    }
}

CUresult TEMPI_EMU_API cuStreamEndCapture(CUstream handle, CUgraph *graph);
CUresult TEMPI_EMU_API cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
    tempi_emu_stream *stream;
    CUresult result = enter(EMU_cuStreamEndCapture, handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    tempi_emu_capture *const capture = stream->capture;
    *graph = NULL;
    if (capture == NULL)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    if (capture->origin != stream)
        return tempi_emu_leave(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    if (capture->mode != RELAXED && capture->thread != &thread)
        return tempi_emu_leave(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    /* Whether joined streams come back by an event is not followed: none may join. */
    if (leave_capture(capture) > 0)
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    if (capture->status == CAPTURE_INVALIDATED)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (result == CUDA_SUCCESS && (*graph = malloc(sizeof **graph)) != NULL)
        (*graph)->nodes = capture->nodes;
    free(capture);
    return tempi_emu_leave(result);
}

static bool captured_blocking(const tempi_emu_context *context)
{
    for (const tempi_emu_stream *s = tempi_emu_streams(); s != NULL; s = s->next)
        if (s->capture != NULL && s->context == context && (s->flags & CU_STREAM_NON_BLOCKING) == 0)
            return true;
    return false;
}

CUresult TEMPI_EMU_API cuStreamIsCapturing(CUstream handle, int *status);
CUresult TEMPI_EMU_API cuStreamIsCapturing(CUstream handle, int *status)
{
    tempi_emu_context *context;
    tempi_emu_stream *stream;
    CUresult result = tempi_emu_enter(EMU_cuStreamIsCapturing, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    /* Of the legacy stream the answer ends no capture (CUDA driver API, cuStreamIsCapturing). */
    if ((uintptr_t)handle < 2 && captured_blocking(context))
        return tempi_emu_leave(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    result = tempi_emu_stream_of(context, handle, &stream);
    if (result == CUDA_SUCCESS)
        *status = stream->capture != NULL ? (int)stream->capture->status : CAPTURE_NONE;
    return tempi_emu_leave(result);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

/* Only the number: `nodes` must be NULL. */
CUresult TEMPI_EMU_API cuGraphGetNodes(CUgraph graph, void **nodes, size_t *count);
CUresult TEMPI_EMU_API cuGraphGetNodes(CUgraph graph, void **nodes, size_t *count)
{
    const CUresult result = tempi_emu_enter(EMU_cuGraphGetNodes, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (graph == NULL || nodes != NULL)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    *count = graph->nodes;
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuGraphDestroy(CUgraph graph);
CUresult TEMPI_EMU_API cuGraphDestroy(CUgraph graph)
{
    const CUresult result = tempi_emu_enter(EMU_cuGraphDestroy, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    free(graph);
    return tempi_emu_leave(CUDA_SUCCESS);
}
