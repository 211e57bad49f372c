/* cu_event.c: events, points in streams to wait for. */
#include "emulator/core/emulator.h"

#include <stdlib.h>

struct tempi_emu_event {
    struct tempi_emu_event *next;
    tempi_emu_context *context;
    unsigned flags;
    unsigned references;
    bool destroyed;
    tempi_emu_point point;      /* no stream: never recorded */
    tempi_emu_capture *capture; /* in which it was recorded; NULL: it is real */
    uint64_t time;              /* when it was reached */
    uint64_t timed;             /* number of the point that `time` belongs to */
};

static tempi_emu_event *events;

size_t tempi_emu_event_count(void)
{
    size_t n = 0;
    for (const tempi_emu_event *e = events; e != NULL; e = e->next)
        n += !e->destroyed;
    return n;
}

static bool known(const tempi_emu_event *event)
{
    for (const tempi_emu_event *e = events; e != NULL; e = e->next)
        if (e == event)
            return !e->destroyed;
    return false;
}

static void event_drop(tempi_emu_event *event)
{
    if (--event->references > 0)
        return;
    tempi_emu_event **place = &events;
    while (*place != event)
        place = &(*place)->next;
    *place = event->next;
    if (event->point.stream != NULL)
        tempi_emu_stream_drop(event->point.stream);
    free(event);
}

CUresult TEMPI_EMU_API cuEventCreate(CUevent *event, unsigned flags);
CUresult TEMPI_EMU_API cuEventCreate(CUevent *event, unsigned flags)
{
    tempi_emu_context *context;
    const CUresult result = tempi_emu_enter(EMU_cuEventCreate, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (event == NULL || flags > 7)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    if (flags & CU_EVENT_INTERPROCESS)
        return tempi_emu_leave(CUDA_ERROR_NOT_SUPPORTED);
    tempi_emu_event *const made = calloc(1, sizeof *made);
    if (made == NULL)
        return tempi_emu_leave(CUDA_ERROR_OUT_OF_MEMORY);
    made->context = context;
    made->flags = flags;
    made->references = 1;
    made->next = events;
    events = *event = made;
    return tempi_emu_leave(CUDA_SUCCESS);
}

static CUresult enter(tempi_emu_function function, CUevent event, tempi_emu_context **context)
{
    const CUresult result = tempi_emu_enter(function, EMU_CONTEXT, context);
    if (result != CUDA_SUCCESS)
        return result;
    return known(event) ? CUDA_SUCCESS : tempi_emu_leave(CUDA_ERROR_INVALID_HANDLE);
}

CUresult TEMPI_EMU_API cuEventDestroy_v2(CUevent event);
CUresult TEMPI_EMU_API cuEventDestroy_v2(CUevent event)
{
    const CUresult result = enter(EMU_cuEventDestroy_v2, event, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    event->destroyed = true;
    event_drop(event);
    return tempi_emu_leave(CUDA_SUCCESS);
}

void tempi_emu_events_end(const tempi_emu_context *context)
{
    for (tempi_emu_event *e = events, *next; e != NULL; e = next) {
        next = e->next;
        if (e->context == context && !e->destroyed) {
            e->destroyed = true;
            event_drop(e);
        }
    }
}

static tempi_emu_event *event_of(const tempi_emu_op *op)
{
    tempi_emu_event *event;
    memcpy(&event, op->payload, sizeof event);
    return event;
}

static CUresult reach(tempi_emu_op *op)
{
    tempi_emu_event *const event = event_of(op);
    tempi_emu_lock();
    event->time = tempi_emu_now();
    event->timed = op->number;
    tempi_emu_unlock();
    return CUDA_SUCCESS;
}

/* Runs even if the work was skipped: otherwise waiters would wait for ever. */
static void drop_record(tempi_emu_op *op)
{
    event_drop(event_of(op));
}

static CUresult record_in(tempi_emu_context *context, CUevent event, CUstream handle)
{
    tempi_emu_stream *stream;
    CUresult result = tempi_emu_stream_of(context, handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (stream->context != event->context)
        return CUDA_ERROR_INVALID_HANDLE;
    tempi_emu_op *const op = tempi_emu_op_new(stream, sizeof event, reach);
    if (op == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->capture = stream->capture;
    if (stream->capture != NULL)
        return tempi_emu_submit(op);
    memcpy(op->payload, &event, sizeof event);
    op->drop = drop_record;
    event->references++;
    tempi_emu_stream_hold(stream);
    if (event->point.stream != NULL)
        tempi_emu_stream_drop(event->point.stream);
    event->point = (tempi_emu_point){stream, stream->submitted + 1};
    return tempi_emu_submit(op);
}

CUresult TEMPI_EMU_API cuEventRecord(CUevent event, CUstream stream);
CUresult TEMPI_EMU_API cuEventRecord(CUevent event, CUstream stream)
{
    tempi_emu_context *context;
    const CUresult result = enter(EMU_cuEventRecord, event, &context);
    return result != CUDA_SUCCESS ? result : tempi_emu_leave(record_in(context, event, stream));
}

static bool reached(const tempi_emu_event *event)
{
    return event->point.stream == NULL || tempi_emu_reached(event->point);
}

CUresult TEMPI_EMU_API cuEventQuery(CUevent event);
CUresult TEMPI_EMU_API cuEventQuery(CUevent event)
{
    const CUresult result = enter(EMU_cuEventQuery, event, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (event->capture != NULL)
        return tempi_emu_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (reached(event))
        return tempi_emu_leave(CUDA_SUCCESS);
    tempi_emu_ask(event->point);
    return tempi_emu_leave(CUDA_ERROR_NOT_READY);
}

CUresult TEMPI_EMU_API cuEventSynchronize(CUevent event);
CUresult TEMPI_EMU_API cuEventSynchronize(CUevent event)
{
    CUresult result = enter(EMU_cuEventSynchronize, event, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    event->references++;
    if (event->point.stream != NULL)
        result = tempi_emu_drive(event->point);
    event_drop(event);
    return tempi_emu_leave(result);
}

CUresult TEMPI_EMU_API cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags);
CUresult TEMPI_EMU_API cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags)
{
    tempi_emu_context *context;
    tempi_emu_stream *stream;
    CUresult result = enter(EMU_cuStreamWaitEvent, event, &context);
    if (result != CUDA_SUCCESS)
        return result;
    result = tempi_emu_stream_of(context, handle, &stream);
    if (result == CUDA_SUCCESS && flags > 1)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && (event->capture != NULL || stream->capture != NULL))
        return tempi_emu_leave(tempi_emu_capture_wait(stream, event->capture));
    if (result != CUDA_SUCCESS || reached(event))
        return tempi_emu_leave(result);
    tempi_emu_op *const op = tempi_emu_op_new(stream, 0, NULL);
    if (op == NULL)
        return tempi_emu_leave(CUDA_ERROR_OUT_OF_MEMORY);
    if (!tempi_emu_op_after(op, event->point)) {
        tempi_emu_op_free(op);
        return tempi_emu_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    return tempi_emu_leave(tempi_emu_submit(op));
}

static CUresult elapsed(tempi_emu_function function, float *ms, CUevent start, CUevent end)
{
    const CUresult result = enter(function, start, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    const bool timed = ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) == 0;
    if (!known(end) || !timed || start->point.stream == NULL || end->point.stream == NULL)
        return tempi_emu_leave(CUDA_ERROR_INVALID_HANDLE);
    if (!reached(start) || !reached(end))
        return tempi_emu_leave(CUDA_ERROR_NOT_READY);
    *ms = (float)((double)(int64_t)(end->time - start->time) / EMU_MS);
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuEventElapsedTime(float *ms, CUevent start, CUevent end);
CUresult TEMPI_EMU_API cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    return elapsed(EMU_cuEventElapsedTime, ms, start, end);
}

CUresult TEMPI_EMU_API cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end);
CUresult TEMPI_EMU_API cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
    return elapsed(EMU_cuEventElapsedTime_v2, ms, start, end);
}
