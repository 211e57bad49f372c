/* message_parts.c: a message in its parts, each timed in context: a pack alone in a loop finds its
 * buffers in the cache, unlike the pack of a message. */
#include "native.h"

#include <stddef.h>

enum { STATUS_ROOM = 256, REQUEST_ROOM = 16 }; /* larger than in any ABI */

typedef int (*mpi_send)(const void *, int, uintptr_t, int, int, uintptr_t);
typedef int (*mpi_receive)(void *, int, uintptr_t, int, int, uintptr_t, void *);
typedef int (*mpi_irecv)(void *, int, uintptr_t, int, int, uintptr_t, void *);
typedef int (*mpi_wait)(void *, void *);
typedef void (*engine_pack)(const tempi_layout *, int64_t, const void *, int64_t, int64_t, void *);

static void pack(const struct bench_parts *p)
{
    if (!p->pack)
        return;
    const double start = bench_now();
    ((engine_pack)p->pack)(p->layout, p->count, p->source, 0, p->bytes, p->send_packed);
    p->spent[0] += bench_now() - start;
}

/* tempi_unpack has the same parameters with the two buffers exchanged. */
static void unpack(const struct bench_parts *p)
{
    if (!p->unpack)
        return;
    const double start = bench_now();
    ((engine_pack)p->unpack)(p->layout, p->count, p->receive_packed, 0, p->bytes, p->target);
    p->spent[1] += bench_now() - start;
}

static int send(const struct bench_parts *p)
{
    pack(p);
    return ((mpi_send)p->send)(p->send_packed, (int)p->bytes, p->type, p->peer, p->tag, p->comm);
}

static int receive(const struct bench_parts *p)
{
    _Alignas(16) char status[STATUS_ROOM];
    const int code = ((mpi_receive)p->receive)(p->receive_packed, (int)p->bytes, p->type, p->peer,
                                               p->tag, p->comm, status);
    if (code == 0)
        unpack(p);
    return code;
}

int bench_parts_first(const void *parts)
{
    const int code = send(parts);
    return code != 0 ? code : receive(parts);
}

int bench_parts_second(const void *parts)
{
    const int code = receive(parts);
    return code != 0 ? code : send(parts);
}

static int to_self(const struct bench_parts *p, const void *from, void *into, int count)
{
    _Alignas(16) char status[STATUS_ROOM], request[REQUEST_ROOM];
    int code = ((mpi_irecv)p->irecv)(into, count, p->type, p->peer, p->tag, p->comm, request);
    if (code == 0)
        code = ((mpi_send)p->send)(from, count, p->type, p->peer, p->tag, p->comm);
    return code != 0 ? code : ((mpi_wait)p->wait)(request, status);
}

int bench_parts_self(const void *parts)
{
    const struct bench_parts *p = parts;
    pack(p);
    const int code = to_self(p, p->send_packed, p->receive_packed, (int)p->bytes);
    if (code == 0)
        unpack(p);
    return code;
}

int bench_typed_self(const void *parts)
{
    const struct bench_parts *p = parts;
    return to_self(p, p->source, p->target, p->count);
}
