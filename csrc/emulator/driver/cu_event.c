/* cu_event.c: points in streams that others wait for. */
#include "emulator/driver/cu_event.h"

#include <stdatomic.h>
#include <stdlib.h>

static tempi_emu_event *events;

size_t tempi_emu_event_count(void)
{
    size_t n = 0;
    for (const tempi_emu_event *e = events; e != NULL; e = e->next)
        n += !e->destroyed;
    return n;
}

bool tempi_emu_event_known(const tempi_emu_event *event)
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
    if (event->shared != NULL && !event->opened)
        tempi_emu_shared_free(event->shared);
    free(event);
}

tempi_emu_event *tempi_emu_event_new(tempi_emu_context *context, unsigned flags)
{
    tempi_emu_event *const event = calloc(1, sizeof *event);
    if (event == NULL)
        return NULL;
    event->context = context;
    event->flags = flags;
    event->references = 1;
    event->next = events;
    events = event;
    return event;
}

CUresult TEMPI_EMU_API cuEventCreate(CUevent *event, unsigned flags);
CUresult TEMPI_EMU_API cuEventCreate(CUevent *event, unsigned flags)
{
    tempi_emu_context *context;
    const CUresult result = tempi_emu_enter(EMU_cuEventCreate, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    const bool shared = (flags & CU_EVENT_INTERPROCESS) != 0;
    if (event == NULL || flags > 7 || (shared && (flags & CU_EVENT_DISABLE_TIMING) == 0))
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    tempi_emu_event *const made = tempi_emu_event_new(context, flags);
    if (made == NULL)
        return tempi_emu_leave(CUDA_ERROR_OUT_OF_MEMORY);
    if (shared && (made->shared = tempi_emu_shared_new()) == NULL) {
        event_drop(made);
        return tempi_emu_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *event = made;
    return tempi_emu_leave(CUDA_SUCCESS);
}

static CUresult enter(tempi_emu_function function, CUevent event, tempi_emu_context **context)
{
    const CUresult result = tempi_emu_enter(function, EMU_CONTEXT, context);
    if (result != CUDA_SUCCESS)
        return result;
    return tempi_emu_event_known(event) ? CUDA_SUCCESS : tempi_emu_leave(CUDA_ERROR_INVALID_HANDLE);
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

typedef struct {
    tempi_emu_event *event;
    uint64_t recorded; /* the number of this record, for other processes */
} record;

static CUresult reach(tempi_emu_op *op)
{
    const record *const made = (const record *)(void *)op->payload;
    tempi_emu_lock();
    made->event->time = tempi_emu_now();
    made->event->timed = op->number;
    tempi_emu_unlock();
    return CUDA_SUCCESS;
}

/* Also when the work was skipped: who waits must not wait for ever. */
static void drop_record(tempi_emu_op *op)
{
    const record *const made = (const record *)(void *)op->payload;
    if (made->event->shared != NULL && atomic_load(&made->event->shared->reached) < made->recorded)
        atomic_store(&made->event->shared->reached, made->recorded);
    event_drop(made->event);
}

static CUresult record_in(tempi_emu_context *context, CUevent event, CUstream handle)
{
    tempi_emu_stream *stream;
    CUresult result = tempi_emu_stream_of(context, handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (stream->context != event->context)
        return CUDA_ERROR_INVALID_HANDLE;
    tempi_emu_op *const op = tempi_emu_op_new(stream, sizeof(record), reach);
    if (op == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    record made = {event, 0};
    if (event->shared != NULL)
        made.recorded = atomic_fetch_add(&event->shared->recorded, 1) + 1;
    memcpy(op->payload, &made, sizeof made);
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

CUresult TEMPI_EMU_API cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags);
CUresult TEMPI_EMU_API cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags)
{
    tempi_emu_context *context;
    const CUresult result = enter(EMU_cuEventRecordWithFlags, event, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (flags > 1)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    return tempi_emu_leave(record_in(context, event, stream));
}

/* An event of another process, recorded there last; one of ours goes by its point. */
static bool foreign(const tempi_emu_event *event)
{
    return event->shared != NULL && event->point.stream == NULL;
}

static bool reached(const tempi_emu_event *event)
{
    if (foreign(event))
        return atomic_load(&event->shared->reached) >= atomic_load(&event->shared->recorded);
    return event->point.stream == NULL || tempi_emu_reached(event->point);
}

CUresult TEMPI_EMU_API cuEventQuery(CUevent event);
CUresult TEMPI_EMU_API cuEventQuery(CUevent event)
{
    const CUresult result = enter(EMU_cuEventQuery, event, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (reached(event))
        return tempi_emu_leave(CUDA_SUCCESS);
    if (!foreign(event))
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
    if (foreign(event)) {
        while (!reached(event) && !tempi_emu_stopped())
            tempi_emu_wait(EMU_MS / 5);
    } else if (event->point.stream != NULL) {
        result = tempi_emu_drive(event->point);
    }
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
    if (result != CUDA_SUCCESS || reached(event))
        return tempi_emu_leave(result);
    tempi_emu_op *const op = tempi_emu_op_new(stream, 0, NULL);
    if (op == NULL)
        return tempi_emu_leave(CUDA_ERROR_OUT_OF_MEMORY);
    if (foreign(event)) {
        op->flag = &event->shared->reached;
        op->reaches = atomic_load(&event->shared->recorded);
    } else if (!tempi_emu_op_after(op, event->point)) {
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
    if (!tempi_emu_event_known(end) || !timed || start->point.stream == NULL ||
        end->point.stream == NULL)
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
