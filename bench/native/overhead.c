/* overhead.c: the cost of a call itself, inside one process. */
#include "native.h"

#include <errno.h>
#include <spawn.h>
#include <sys/wait.h>

enum { STATUS_ROOM = 256 };

typedef int (*mpi_barrier)(uintptr_t);
typedef int (*mpi_send)(const void *, int, uintptr_t, int, int, uintptr_t);
typedef int (*mpi_irecv)(void *, int, uintptr_t, int, int, uintptr_t, void *);
typedef int (*mpi_wait)(void *, void *);
typedef int (*mpi_waitall)(int, void *, void *);

int bench_barrier(const void *argument)
{
    const struct bench_calls *c = argument;
    return ((mpi_barrier)c->barrier)(c->comm);
}

int bench_send(const void *argument)
{
    const struct bench_calls *c = argument;
    return ((mpi_send)c->send)(c->source, c->count, c->sent_type, c->peer, 0, c->comm);
}

/* A receive, the send that it matches, and its completion. */
int bench_exchange(const void *argument)
{
    const struct bench_calls *c = argument;
    _Alignas(16) char status[STATUS_ROOM];
    int code = ((mpi_irecv)c->irecv)(c->target, c->count, c->type, c->peer, 0, c->comm,
                                     c->requests);
    if (code == 0)
        code = bench_send(c);
    return code != 0 ? code : ((mpi_wait)c->wait)(c->requests, status);
}

static int post(const struct bench_calls *c)
{
    int code = 0;
    for (int i = 0; i < c->n && code == 0; i++)
        code = ((mpi_irecv)c->irecv)(c->target, c->count, c->type, c->peer, i, c->comm,
                                     c->requests + (int64_t)i * c->request_size);
    for (int i = 0; i < c->n && code == 0; i++)
        code = ((mpi_send)c->send)(c->source, c->count, c->sent_type, c->peer, i, c->comm);
    return code;
}

/* n receives, the n sends that they match, and their completion. */
int bench_burst(const void *argument)
{
    const struct bench_calls *c = argument;
    const int code = post(c);
    return code != 0 ? code : ((mpi_waitall)c->waitall)(c->n, c->requests, c->statuses);
}

double bench_waitall(const struct bench_calls *c, int64_t loops)
{
    double seconds = 0;
    for (int64_t i = 0; i < loops; i++) {
        int code = post(c);
        const double start = bench_now();
        if (code == 0)
            code = ((mpi_waitall)c->waitall)(c->n, c->requests, c->statuses);
        seconds += bench_now() - start;
        if (code != 0)
            return code > 0 ? -(double)code : (double)code;
    }
    return seconds;
}

double bench_first_use(int (*datatype_layout)(uintptr_t, const tempi_layout **),
                       const uintptr_t *types, int64_t n)
{
    const tempi_layout *layout;
    const double start = bench_now();
    for (int64_t i = 0; i < n; i++) {
        const int code = datatype_layout(types[i], &layout);
        if (code != 0)
            return -(double)code;
    }
    return bench_now() - start;
}

typedef int (*mpi_make)(int, int, const int *, uintptr_t, void *);
typedef int (*mpi_of_type)(void *);
typedef int (*mpi_pack)(const void *, int, uintptr_t, void *, int, int *, uintptr_t);

typedef int (*mpi_sendrecv)(const void *, int, uintptr_t, int, int, void *, int, uintptr_t, int,
                            int, uintptr_t, void *);

static int use_once(const struct bench_once *o, uintptr_t type)
{
    _Alignas(16) char status[STATUS_ROOM];
    int position = 0;
    if (o->sendrecv)
        return ((mpi_sendrecv)o->sendrecv)(o->memory, 1, type, 0, 0, o->packed, 1, type, 0, 0,
                                           o->comm, status);
    return ((mpi_pack)o->pack)(o->memory, 1, type, o->packed, o->room, &position, o->comm);
}

int bench_used_once(const void *argument)
{
    const struct bench_once *o = argument;
    uintptr_t type = 0; /* a 32-bit handle fills its lower half */
    int code = ((mpi_make)o->make)(o->blocks, o->length, o->places, o->inner, &type);
    if (code == 0)
        code = ((mpi_of_type)o->commit)(&type);
    if (code == 0)
        code = use_once(o, type);
    return code != 0 ? code : ((mpi_of_type)o->free)(&type);
}

double bench_spawn(const char *path, char *const *environment, int64_t loops)
{
    char *arguments[] = {(char *)path, NULL};
    const double start = bench_now();
    for (int64_t i = 0; i < loops; i++) {
        pid_t child;
        int status = 0;
        const int code = posix_spawn(&child, path, NULL, NULL, arguments, environment);
        if (code != 0)
            return -(double)code;
        while (waitpid(child, &status, 0) < 0)
            if (errno != EINTR)
                return -(double)errno;
        if (status != 0)
            return -(double)status;
    }
    return bench_now() - start;
}
