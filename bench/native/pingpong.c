/* pingpong.c: round trips between two ranks, by datatype and packed by hand. */
#include "native.h"

enum { STATUS_ROOM = 256 }; /* larger than the MPI_Status of any ABI */

typedef int (*mpi_send)(const void *, int, uintptr_t, int, int, uintptr_t);
typedef int (*mpi_receive)(void *, int, uintptr_t, int, int, uintptr_t, void *);

static int send_typed(const struct bench_message *m)
{
    return ((mpi_send)m->send)(m->source, m->count, m->type, m->peer, m->tag, m->comm);
}

static int receive_typed(const struct bench_message *m)
{
    _Alignas(16) char status[STATUS_ROOM];
    return ((mpi_receive)m->receive)(m->target, m->count, m->type, m->peer, m->tag, m->comm,
                                     status);
}

static int send_by_hand(const struct bench_message *m)
{
    const struct bench_transfer t = {.layout = m->layout,
                                     .memory = m->source,
                                     .packed = m->send_packed,
                                     .bytes = m->bytes,
                                     .count = m->count};
    bench_hand_pack(&t);
    return ((mpi_send)m->send)(m->send_packed, (int)m->bytes, m->byte_type, m->peer, m->tag,
                               m->comm);
}

static int receive_by_hand(const struct bench_message *m)
{
    _Alignas(16) char status[STATUS_ROOM];
    const struct bench_transfer t = {.layout = m->layout,
                                     .memory = m->target,
                                     .packed = m->receive_packed,
                                     .bytes = m->bytes,
                                     .count = m->count};
    const int code = ((mpi_receive)m->receive)(m->receive_packed, (int)m->bytes, m->byte_type,
                                               m->peer, m->tag, m->comm, status);
    if (code == 0)
        bench_hand_unpack(&t);
    return code;
}

int bench_pingpong_first(const void *message)
{
    const int code = send_typed(message);
    return code != 0 ? code : receive_typed(message);
}

int bench_pingpong_second(const void *message)
{
    const int code = receive_typed(message);
    return code != 0 ? code : send_typed(message);
}

int bench_hand_first(const void *message)
{
    const int code = send_by_hand(message);
    return code != 0 ? code : receive_by_hand(message);
}

int bench_hand_second(const void *message)
{
    const int code = receive_by_hand(message);
    return code != 0 ? code : send_by_hand(message);
}
