/* fake.c: see fake.h. One lock; streams are arrays of operations, run in order, only as far as
 * a wait for another stream's event requires. */
#include "fake.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COPY, FILL, KERNEL, RECORD, WAIT };
enum { GREATEST_PRIORITY = -5 };
enum {
    OK = 0,
    INVALID = 1,
    NO_MEMORY = 2,
    NOT_INITIALIZED = 3,
    BAD_CONTEXT = 201,
    BAD_HANDLE = 400,
    NOT_READY = 600
};

struct stream;
typedef struct operation {
    int kind;
    void *dst;
    const void *src;
    void *owned; /* freed after it ran */
    size_t n;
    uint64_t params[FAKE_PARAMS];
    struct stream *other;
    long until;
} operation;

typedef struct stream {
    int device;
    int blocking; /* comes after the device's legacy stream */
    operation *ops;
    long head, tail, room;
} stream;

typedef struct event {
    int device;
    stream *in;
    long at;
} event;

typedef struct range {
    struct range *next;
    char *base;
    size_t size;
    int kind, device;
    uint64_t id;
} range;

fake_control fake;
static pthread_mutex_t lock;
static int initialized, contexts[FAKE_DEVICES];
static stream legacy[FAKE_DEVICES] = {{.device = 0}, {.device = 1}};
static range *ranges;
static uint64_t last_id;
static _Thread_local int stack[16], depth; /* of contexts: 1 + device; 0: none */

static int enter(const char *name, int needs_context)
{
    pthread_mutex_lock(&lock);
    ++fake.calls;
    if (fake.lost)
        return fake.lost;
    if (fake.fail_at > 0 && --fake.fail_at == 0) {
        snprintf(fake.last_call, sizeof fake.last_call, "%s", name);
        if (fake.fail_with >= 700 && fake.fail_with < 720)
            fake.lost = fake.fail_with;
        return fake.fail_with;
    }
    if (fake.fail_call && strcmp(name, fake.fail_call) == 0) {
        fake.fail_call = fake.fail_once ? NULL : fake.fail_call;
        return fake.fail_with;
    }
    if (!initialized && strcmp(name, "cuInit") != 0)
        return NOT_INITIALIZED;
    return needs_context && stack[depth] == 0 ? BAD_CONTEXT : OK;
}

#define CALL(name, parameters, needs_context, ...) \
    int name parameters;                           \
    int name parameters                            \
    {                                              \
        int result = enter(#name, needs_context);  \
        if (result == OK)                          \
            __VA_ARGS__                            \
        pthread_mutex_unlock(&lock);               \
        return result;                             \
    }

/* ---- memory ---------------------------------------------------------------------------------- */

static range *range_of(const void *address)
{
    for (range *r = ranges; r; r = r->next)
        if ((const char *)address >= r->base && (const char *)address < r->base + r->size)
            return r;
    return NULL;
}

/* The one range that was freed last: a driver gives addresses out again. */
static struct {
    char *base;
    size_t size;
} spare;

static char *base_new(size_t bytes)
{
    char *base = spare.base;
    if (!base || spare.size != bytes)
        return aligned_alloc(256, (bytes + 255) / 256 * 256);
    spare.base = NULL;
    return base;
}

static void base_free(char *base, size_t bytes)
{
    free(spare.base);
    spare.base = base;
    spare.size = bytes;
}

static int range_new(int kind, int device, size_t bytes, void **out)
{
    if ((int64_t)bytes > fake.room)
        return NO_MEMORY;
    range *r = malloc(sizeof *r);
    *r = (range){ranges, base_new(bytes), bytes, kind, device, ++last_id};
    memset(r->base, 0xdb, bytes);
    fake.room -= (int64_t)bytes;
    ranges = r;
    *out = r->base;
    return OK;
}

static int range_free(const void *address)
{
    for (range **r = &ranges; *r; r = &(*r)->next) {
        if ((*r)->base == address) {
            range *gone = *r;
            *r = gone->next;
            fake.room += (int64_t)gone->size;
            base_free(gone->base, gone->size);
            free(gone);
            return OK;
        }
    }
    return INVALID;
}

static uint64_t attribute(const range *r, int which)
{
    switch (which) {
    case 2: return r->kind == FAKE_PINNED ? 1 : 2;
    case 7: return r->id;
    case 8: return r->kind == FAKE_MANAGED;
    case 9: return (uint64_t)r->device;
    case 11: return (uintptr_t)r->base;
    case 12: return r->size;
    default: return 0;
    }
}

static void answer(const range *r, int which, void *out)
{
    const uint64_t value = r ? attribute(r, which) : 0;
    memcpy(out, &value, which == 2 || which == 8 || which == 9 ? 4 : 8);
}

/* ---- streams --------------------------------------------------------------------------------- */

static operation *append(stream *s)
{
    if (s->blocking && legacy[s->device].head < legacy[s->device].tail) {
        s->blocking = 0;
        *append(s) =
            (operation){.kind = WAIT, .other = &legacy[s->device], .until = legacy[s->device].tail};
        s->blocking = 1;
    }
    if (s->tail == s->room) {
        s->room = s->room ? 2 * s->room : 16;
        s->ops = realloc(s->ops, (size_t)s->room * sizeof *s->ops);
    }
    operation *o = &s->ops[s->tail++];
    memset(o, 0, sizeof *o);
    ++fake.pending;
    return o;
}

static void run_until(stream *s, long end);

static void run_one(stream *s)
{
    operation o = s->ops[s->head];
    if (o.kind == WAIT)
        run_until(o.other, o.until);
    if (o.kind == COPY)
        memcpy(o.dst, o.src, o.n);
    if (o.kind == FILL)
        memset(o.dst, (int)o.params[0], o.n);
    if (o.kind == KERNEL)
        fake.kernel(o.params);
    free(o.owned);
    ++s->head;
    --fake.pending;
}

static void run_until(stream *s, long end)
{
    while (s->head < end)
        run_one(s);
}

static stream *stream_at(void *handle)
{
    return handle == (void *)1 ? &legacy[stack[depth] - 1] : handle;
}

static void put_copy(stream *s, char *dst, const char *src, size_t n)
{
    operation *o = append(s);
    *o = (operation){.kind = COPY, .dst = dst, .src = src, .n = n};
    if (!range_of(src)) { /* pageable: taken at once */
        o->owned = malloc(n ? n : 1);
        memcpy(o->owned, src, n);
        o->src = o->owned;
    }
    if (!range_of(dst)) /* pageable: there when the call returns */
        run_until(s, s->tail);
    ++fake.copies;
}

static int query(event *e)
{
    if (!e->in || e->in->head >= e->at)
        return OK;
    for (int i = 0; i < fake.progress && e->in->head < e->at; ++i)
        run_one(e->in);
    return e->in->head >= e->at ? OK : NOT_READY;
}

static void *made(void *what)
{
    ++fake.live;
    return what;
}

static void gone(void *what)
{
    --fake.live;
    free(what);
}

static int stream_gone(stream *s)
{
    run_until(s, s->tail);
    free(s->ops);
    gone(s);
    return OK;
}

static stream *stream_new(int device)
{
    stream *s = calloc(1, sizeof *s);
    s->device = device;
    return s;
}

/* ---- the driver API -------------------------------------------------------------------------- */

typedef uint64_t address;
static int error_name(const char **out)
{
    *out = "FAKE_ERROR";
    return OK;
}

int cuGetErrorName(int result, const char **out);
int cuGetErrorName(int result, const char **out)
{
    (void)result;
    return error_name(out);
}

CALL(cuInit, (unsigned flags), 0, {
    (void)flags;
    initialized = 1;
})
CALL(cuDeviceGetCount, (int *out), 0, { *out = FAKE_DEVICES; })
CALL(cuDeviceGet, (int *out, int ordinal), 0, {
    *out = ordinal;
    result = ordinal < FAKE_DEVICES ? OK : INVALID;
})
CALL(cuDeviceGetAttribute, (int *out, int which, int device), 0, {
    *out = which == 75 ? 9 : which == 76 ? 0 : 4;
    (void)device;
})
CALL(cuDevicePrimaryCtxRetain, (void **out, int device), 0, {
    ++contexts[device];
    *out = made(&contexts[device]);
})
CALL(cuDevicePrimaryCtxRelease_v2, (int device), 0, {
    --contexts[device];
    --fake.live;
})
CALL(cuCtxGetCurrent, (void **out), 0,
     { *out = stack[depth] ? &contexts[stack[depth] - 1] : NULL; })
CALL(cuCtxPushCurrent_v2, (void *context), 0,
     { stack[++depth] = 1 + (int)((int *)context - contexts); })
CALL(cuCtxPopCurrent_v2, (void **out), 1, {
    *out = &contexts[stack[depth] - 1];
    --depth;
})
CALL(cuPointerGetAttribute, (void *data, int which, address at), 0, {
    const range *r = range_of((void *)at);
    ++fake.queries;
    answer(r, which, data);
    result = r ? OK : INVALID;
})
CALL(cuPointerGetAttributes, (unsigned n, int *which, void **data, address at), 0, {
    ++fake.queries;
    for (unsigned i = 0; i < n; ++i)
        answer(range_of((void *)at), which[i], data[i]);
})
CALL(cuMemAlloc_v2, (address * out, size_t bytes), 1, {
    void *base = NULL;
    result = range_new(FAKE_DEVICE, stack[depth] - 1, bytes, &base);
    *out = (address)base;
    fake.live += result == OK;
})
CALL(cuMemFree_v2, (address at), 1, {
    result = range_free((void *)at);
    fake.live -= result == OK;
})
CALL(cuMemHostAlloc, (void **out, size_t bytes, unsigned flags), 1, {
    result = flags == 3 ? range_new(FAKE_PINNED, stack[depth] - 1, bytes, out) : INVALID;
    fake.live += result == OK;
})
CALL(cuMemFreeHost, (void *at), 1, {
    result = range_free(at);
    fake.live -= result == OK;
})
CALL(cuMemcpyAsync, (address dst, address src, size_t n, stream *s), 1,
     { put_copy(stream_at(s), (char *)dst, (char *)src, n); })
CALL(cuStreamCreate, (stream * *out, unsigned flags), 1, {
    *out = made(stream_new(stack[depth] - 1));
    (*out)->blocking = flags == 0;
})
/* All of tempi's streams must have the greatest priority. */
CALL(cuCtxGetStreamPriorityRange, (int *least, int *greatest), 1, {
    *least = 0;
    *greatest = GREATEST_PRIORITY;
})
CALL(cuStreamCreateWithPriority, (stream * *out, unsigned flags, int priority), 1, {
    if (priority != GREATEST_PRIORITY)
        abort();
    *out = made(stream_new(stack[depth] - 1));
    (*out)->blocking = flags == 0;
})
CALL(cuMemsetD8Async, (address to, unsigned char value, size_t n, stream *s), 1, {
    operation *o = append(stream_at(s));
    *o = (operation){.kind = FILL, .dst = (char *)to, .n = n};
    o->params[0] = value;
})
CALL(cuStreamDestroy_v2, (stream * s), 1, { result = stream_gone(s); })
CALL(cuStreamSynchronize, (stream * s), 1, { run_until(stream_at(s), stream_at(s)->tail); })
CALL(cuStreamWaitEvent, (stream * s, event *e, unsigned flags), 1, {
    (void)flags;
    if (e->in)
        *append(stream_at(s)) = (operation){.kind = WAIT, .other = e->in, .until = e->at};
})
CALL(cuEventCreate, (event * *out, unsigned flags), 1, {
    (void)flags;
    *out = made(calloc(1, sizeof **out));
    (*out)->device = stack[depth] - 1;
})
CALL(cuEventDestroy_v2, (event * e), 1, { gone(e); })
CALL(cuEventRecord, (event * e, stream *s), 1, {
    stream *in = stream_at(s);
    if (in->device != e->device || in->device != stack[depth] - 1) {
        result = BAD_HANDLE;
    } else {
        append(in)->kind = RECORD;
        e->in = in;
        e->at = in->tail;
    }
})
CALL(cuEventQuery, (event * e), 0, { result = query(e); })
CALL(cuEventSynchronize, (event * e), 0, {
    if (e->in)
        run_until(e->in, e->at);
})
CALL(cuModuleLoadData, (void **out, const void *image), 1, {
    result = strcmp(image, "code") ? 218 : OK;
    if (result == OK)
        *out = made(malloc(1));
})
CALL(cuModuleUnload, (void *module), 1, { gone(module); })
CALL(cuModuleGetFunction, (void **out, void *module, const char *name), 1, {
    (void)name;
    *out = module;
})
CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor,
     (int *out, void *function, int block, size_t shared), 1, {
         (void)function, (void)block, (void)shared;
         *out = 3;
     })
CALL(cuLaunchKernel,
     (void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
      unsigned shared, stream *s, void **params, void **extra),
     1, {
         (void)f, (void)gy, (void)gz, (void)by, (void)bz, (void)shared, (void)extra;
         if (gx == 0 || bx == 0 || stream_at(s)->device != stack[depth] - 1) {
             result = BAD_HANDLE;
         } else {
             operation *o = append(stream_at(s));
             o->kind = KERNEL;
             for (int i = 0; i < 2; ++i)
                 memcpy(&o->params[i], params[i], 8);
             ++fake.launches;
             fake.grid = (int)gx;
         }
     })

/* ---- the program's way in -------------------------------------------------------------------- */

static void *program_alloc(int kind, int device, int64_t bytes)
{
    void *out = NULL;
    pthread_mutex_lock(&lock);
    range_new(kind, device, (size_t)bytes, &out);
    pthread_mutex_unlock(&lock);
    return out;
}

static void program_free(void *at)
{
    pthread_mutex_lock(&lock);
    range_free(at);
    pthread_mutex_unlock(&lock);
}

static void *program_stream(int device)
{
    return device < 0 ? &legacy[-1 - device] : stream_new(device);
}

static void program_end(void *s)
{
    ++fake.live; /* it was never counted */
    stream_gone(s);
}

static void program_fill(void *s, void *to, int byte, int64_t n)
{
    pthread_mutex_lock(&lock);
    operation *o = append(s);
    *o = (operation){.kind = FILL, .dst = to, .n = (size_t)n};
    o->params[0] = (uint64_t)byte;
    pthread_mutex_unlock(&lock);
}

static void *program_current(int device)
{
    stack[depth] = 1 + device;
    return device < 0 ? NULL : &contexts[device];
}

__attribute__((destructor)) static void finish(void)
{
    for (int i = 0; i < FAKE_DEVICES; ++i)
        free(legacy[i].ops);
    free(spare.base);
}

__attribute__((constructor)) static void start(void)
{
    pthread_mutexattr_t again;
    pthread_mutexattr_init(&again);
    pthread_mutexattr_settype(&again, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &again);
    fake = (fake_control){.progress = 1,
                          .room = (int64_t)1 << 30,
                          .alloc = program_alloc,
                          .free = program_free,
                          .stream = program_stream,
                          .end = program_end,
                          .fill = program_fill,
                          .current = program_current};
}
