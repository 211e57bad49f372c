/* queue.c: streams as queues of deferred work.
 *
 * An operation can run if it is the first of its stream and all points that it depends on are
 * reached. A waiting thread runs the work that its point depends on. The driver's own thread runs
 * the rest: after a delay, or soon if the program keeps querying. Callbacks always run there, since
 * a waiting thread may hold locks that they take. */
#include "emulator/core/emulator.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { MAGIC = 0x57e4, PATIENCE = 8 /* queries before work is hurried */, DEEP = 1000 };

static tempi_emu_stream *streams;
static uint64_t last_id = 16;
static bool worker_runs;

/* ---- streams --------------------------------------------------------------------------------- */

tempi_emu_stream *tempi_emu_stream_new(tempi_emu_context *context, unsigned flags)
{
    tempi_emu_stream *const stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return NULL;
    stream->magic = MAGIC;
    stream->context = context;
    stream->flags = flags;
    stream->references = 1;
    stream->id = ++last_id;
    stream->next = streams;
    streams = stream;
    return stream;
}

tempi_emu_stream *tempi_emu_streams(void)
{
    return streams;
}

void tempi_emu_stream_hold(tempi_emu_stream *stream)
{
    stream->references++;
}

void tempi_emu_stream_drop(tempi_emu_stream *stream)
{
    if (--stream->references > 0)
        return;
    tempi_emu_stream **place = &streams;
    while (*place != stream)
        place = &(*place)->next;
    *place = stream->next;
    stream->magic = 0;
    free(stream);
}

size_t tempi_emu_stream_count(void)
{
    size_t n = 0;
    for (const tempi_emu_stream *s = streams; s != NULL; s = s->next)
        n += !s->destroyed && s != s->context->legacy;
    return n;
}

static bool known(const tempi_emu_stream *stream)
{
    for (const tempi_emu_stream *s = streams; s != NULL; s = s->next)
        if (s == stream)
            return !s->destroyed;
    return false;
}

void tempi_emu_streams_end(const tempi_emu_context *context)
{
    for (tempi_emu_stream *s = streams, *next; s != NULL; s = next) {
        next = s->next;
        if (s->context == context && !s->destroyed) {
            s->destroyed = true;
            tempi_emu_stream_drop(s);
        }
    }
}

static tempi_emu_stream *default_of_thread(tempi_emu_context *context)
{
    static _Thread_local char thread;
    for (tempi_emu_stream *s = streams; s != NULL; s = s->next)
        if (s->thread == &thread && s->context == context && !s->destroyed)
            return s;
    tempi_emu_stream *const made = tempi_emu_stream_new(context, 0);
    if (made != NULL)
        made->thread = &thread;
    return made;
}

CUresult tempi_emu_stream_of(tempi_emu_context *context, CUstream handle, tempi_emu_stream **stream)
{
    const uintptr_t number = (uintptr_t)handle;
    *stream = number < 2 ? context->legacy : number == 2 ? default_of_thread(context) : handle;
    if (number == 2 && *stream == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (number < 2 && tempi_emu_legacy_use(context) != CUDA_SUCCESS)
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    return known(*stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- operations ------------------------------------------------------------------------------ */

bool tempi_emu_reached(tempi_emu_point point)
{
    return point.stream->completed >= point.number;
}

tempi_emu_op *tempi_emu_op_new(tempi_emu_stream *stream, size_t payload,
                               CUresult (*run)(tempi_emu_op *op))
{
    tempi_emu_op *const op = calloc(1, sizeof *op + payload);
    if (op == NULL)
        return NULL;
    op->stream = stream;
    op->run = run;
    tempi_emu_stream_hold(stream);
    return op;
}

void tempi_emu_op_free(tempi_emu_op *op)
{
    if (op->drop != NULL)
        op->drop(op);
    for (size_t i = 0; i < op->afters; i++)
        tempi_emu_stream_drop(op->after[i].stream);
    tempi_emu_stream_drop(op->stream);
    free(op->after);
    free(op);
}

bool tempi_emu_op_after(tempi_emu_op *op, tempi_emu_point point)
{
    if (point.stream == op->stream || tempi_emu_reached(point))
        return true;
    tempi_emu_point *const more = realloc(op->after, (op->afters + 1) * sizeof *more);
    if (more == NULL)
        return false;
    op->after = more;
    op->after[op->afters++] = point;
    tempi_emu_stream_hold(point.stream);
    return true;
}

static bool blocking(const tempi_emu_stream *stream)
{
    return (stream->flags & CU_STREAM_NON_BLOCKING) == 0;
}

/* The legacy default stream waits for all blocking streams of its context, and vice versa. */
static bool after_defaults(tempi_emu_op *op)
{
    tempi_emu_stream *const legacy = op->stream->context->legacy;
    if (op->stream != legacy)
        return !blocking(op->stream) ||
               tempi_emu_op_after(op, (tempi_emu_point){legacy, legacy->submitted});
    for (tempi_emu_stream *s = streams; s != NULL; s = s->next)
        if (s->context == op->stream->context && blocking(s) &&
            !tempi_emu_op_after(op, (tempi_emu_point){s, s->submitted}))
            return false;
    return true;
}

static bool may_run(const tempi_emu_op *op)
{
    for (size_t i = 0; i < op->afters; i++)
        if (!tempi_emu_reached(op->after[i]))
            return false;
    return true;
}

/* Runs the first operation of a stream, with the lock released. */
static void run_head(tempi_emu_stream *stream)
{
    tempi_emu_op *const op = stream->head;
    tempi_emu_context *const context = stream->context;
    tempi_emu_stream_hold(stream);
    stream->running = true;
    const bool skip = context->sticky != CUDA_SUCCESS || tempi_emu_stopped();
    tempi_emu_unlock();
    const CUresult result = skip || op->run == NULL ? CUDA_SUCCESS : op->run(op);
    tempi_emu_lock();
    if (result != CUDA_SUCCESS && context->sticky == CUDA_SUCCESS)
        context->sticky = result;
    stream->running = false;
    stream->asked = 0;
    stream->head = op->next;
    if (stream->head == NULL)
        stream->tail = NULL;
    stream->completed = op->number;
    tempi_emu_op_free(op);
    tempi_emu_stream_drop(stream);
    tempi_emu_changed();
}

/* Finds a stream that this one's next operation depends on and whose first operation can run
 * now. */
static tempi_emu_stream *runnable(tempi_emu_stream *stream, bool callbacks, int deep)
{
    const tempi_emu_op *const op = stream->head;
    if (op == NULL || stream->running || deep > DEEP)
        return NULL;
    if (may_run(op))
        return op->callback && !callbacks ? NULL : stream;
    for (size_t i = 0; i < op->afters; i++) {
        if (tempi_emu_reached(op->after[i]))
            continue;
        tempi_emu_stream *const found = runnable(op->after[i].stream, callbacks, deep + 1);
        if (found != NULL)
            return found;
    }
    return NULL;
}

static void want(tempi_emu_point point)
{
    if (point.stream->wanted < point.number) {
        point.stream->wanted = point.number;
        tempi_emu_changed();
    }
}

CUresult tempi_emu_drive(tempi_emu_point point)
{
    tempi_emu_context *const context = point.stream->context;
    tempi_emu_stream_hold(point.stream);
    want(point);
    while (!tempi_emu_reached(point)) {
        tempi_emu_stream *const next = runnable(point.stream, false, 0);
        if (next != NULL)
            run_head(next);
        else
            tempi_emu_wait(EMU_MS / 5);
    }
    tempi_emu_stream_drop(point.stream);
    return tempi_emu_stopped() ? CUDA_ERROR_DEVICE_UNAVAILABLE : context->sticky;
}

CUresult tempi_emu_drive_context(tempi_emu_context *context)
{
    tempi_emu_stream *stream = streams;
    while (stream != NULL) {
        if (stream->context != context || stream->completed == stream->submitted) {
            stream = stream->next;
            continue;
        }
        tempi_emu_drive((tempi_emu_point){stream, stream->submitted});
        stream = streams; /* the list may have changed */
    }
    return tempi_emu_stopped() ? CUDA_ERROR_DEVICE_UNAVAILABLE : context->sticky;
}

/* A query does not wait, but repeated queries hurry the work. */
void tempi_emu_ask(tempi_emu_point point)
{
    if (++point.stream->asked >= PATIENCE)
        want(point);
}

/* ---- submitting ------------------------------------------------------------------------------ */

/* Runs the operations of a stream that can run without waiting. */
static void run_some(tempi_emu_stream *stream, uint64_t most)
{
    tempi_emu_stream_hold(stream);
    for (; most > 0; most--) {
        tempi_emu_stream *const next = runnable(stream, false, 0);
        if (next == NULL)
            break;
        run_head(next);
    }
    want((tempi_emu_point){stream, stream->head != NULL && most > 0 ? stream->submitted : 0});
    tempi_emu_stream_drop(stream);
}

CUresult tempi_emu_submit(tempi_emu_op *op)
{
    tempi_emu_stream *const stream = op->stream;
    if (tempi_emu_captured(op))
        return CUDA_SUCCESS;
    if (!after_defaults(op)) {
        tempi_emu_op_free(op);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const uint64_t delay = tempi_emulator_delay_ns;
    const bool chance = tempi_emu_option.mode == EMU_RANDOM;
    op->due = tempi_emu_now() + (chance && delay > 0 ? tempi_emu_random() % delay : delay);
    op->number = ++stream->submitted;
    if (stream->tail != NULL)
        stream->tail->next = op;
    else
        stream->head = op;
    stream->tail = op;
    tempi_emu_worker_start();
    tempi_emu_changed();
    if (tempi_emu_option.mode == EMU_IMMEDIATE)
        run_some(stream, UINT64_MAX);
    else if (chance && tempi_emu_random() % 2 == 0)
        run_some(stream, tempi_emu_random() % 4);
    return CUDA_SUCCESS;
}

/* ---- the driver's thread --------------------------------------------------------------------- */

/* A stream with due work; else NULL, and *due is the time of the next check. */
static tempi_emu_stream *overdue(uint64_t now, uint64_t *due)
{
    for (tempi_emu_stream *s = streams; s != NULL; s = s->next) {
        if (s->head == NULL)
            continue;
        if (s->head->due > now && s->wanted < s->head->number) {
            if (s->head->due < *due)
                *due = s->head->due;
            continue;
        }
        tempi_emu_stream *const found = runnable(s, true, 0);
        if (found != NULL)
            return found;
        if (*due > now + EMU_MS)
            *due = now + EMU_MS; /* it may wait for another process */
    }
    return NULL;
}

static void *work(void *nothing)
{
    (void)nothing;
    tempi_emu_lock();
    for (;;) {
        const uint64_t now = tempi_emu_now();
        uint64_t due = now + 1000ull * EMU_MS;
        tempi_emu_stream *const next = overdue(now, &due);
        if (next != NULL)
            run_head(next);
        else
            tempi_emu_wait(due - now);
    }
    return NULL;
}

void tempi_emu_worker_start(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all;
    sigset_t before;
    if (worker_runs)
        return;
    sigfillset(&all); /* the program's signals belong to its own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    worker_runs = pthread_create(&thread, &attributes, work, NULL) == 0;
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!worker_runs)
        tempi_emu_say("no thread for deferred work: it runs only when it is waited for");
}
