/* native.h: timing loops for `tempi bench`.
 *
 * MPI functions are passed as pointers and MPI handles as uintptr_t, so that one library serves
 * every MPI: on x86-64 and arm64 (System V) both kinds of ABI read a 32-bit handle correctly from a
 * 64-bit register or stack slot. Every timed operation is a `bench_op`; it returns 0 or an error
 * code. */
#ifndef TEMPI_BENCH_NATIVE_H
#define TEMPI_BENCH_NATIVE_H
#include "tempi.h"

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

typedef int (*bench_op)(const void *argument);

/* Total seconds of `loops` calls; minus the op's error code if one fails. */
double bench_time(bench_op op, const void *argument, int64_t loops);

/* One pack or unpack of `count` elements between `memory` and `packed`. */
struct bench_transfer {
    void *function; /* MPI_Pack or MPI_Unpack, tempi_pack or tempi_unpack; unused by the others */
    const tempi_layout *layout;
    uintptr_t type;
    uintptr_t comm;
    char *memory;
    char *packed;
    int64_t bytes; /* packed size of all elements */
    int32_t count;
};
int bench_mpi_pack(const void *transfer);
int bench_mpi_unpack(const void *transfer);
int bench_engine_pack(const void *transfer);
int bench_engine_unpack(const void *transfer);
int bench_hand_pack(const void *transfer);
int bench_hand_unpack(const void *transfer);
int bench_bound_pack(const void *transfer);
int bench_bound_unpack(const void *transfer);
int bench_memcpy(const void *transfer);

/* The lines of a copy of one element, between two layouts that are one nest of runs each. */
struct bench_copy {
    const tempi_layout *from;
    const tempi_layout *to;
    char *source;
    char *target;
    int64_t bytes;
};
int bench_bound_copy(const void *copy);

/* Half of a ping-pong: rank 0 runs the _first ops, rank 1 the _second ones. */
struct bench_message {
    void *send;
    void *receive;
    uintptr_t type;
    uintptr_t byte_type;
    uintptr_t comm;
    const tempi_layout *layout;
    char *source;      /* sent from here by datatype */
    char *target;      /* received here by datatype */
    char *send_packed; /* packed data of the hand-written exchange */
    char *receive_packed;
    int64_t bytes;
    int32_t count;
    int32_t peer;
    int32_t tag;
};
int bench_pingpong_first(const void *message);
int bench_pingpong_second(const void *message);
int bench_hand_first(const void *message);
int bench_hand_second(const void *message);

/* A message as tempi sends it, in parts: pack, a message of packed bytes, unpack. With one rank the
 * receive is posted before the send. */
struct bench_parts {
    void *pack; /* tempi_pack, tempi_unpack; NULL: only the packed bytes are sent */
    void *unpack;
    void *send;
    void *receive;
    void *irecv;
    void *wait;
    const tempi_layout *layout;
    uintptr_t type; /* of the contents: MPI_PACKED, or the datatype for bench_typed_self */
    uintptr_t comm;
    char *source;
    char *target;
    char *send_packed;
    char *receive_packed;
    double *spent; /* seconds of pack and of unpack are added to these two */
    int64_t bytes;
    int32_t count;
    int32_t peer;
    int32_t tag;
};
int bench_parts_first(const void *parts);
int bench_parts_second(const void *parts);
int bench_parts_self(const void *parts);
int bench_typed_self(const void *parts);

/* Calls whose own cost is measured: everything stays in this process. */
struct bench_calls {
    void *barrier;
    void *send;
    void *irecv;
    void *wait;
    void *waitall;
    uintptr_t type;      /* received */
    uintptr_t sent_type; /* of the same signature as `type` */
    uintptr_t comm;      /* MPI_COMM_SELF or a copy */
    char *source;
    char *target;
    char *requests; /* room for n + 1 */
    char *statuses;
    int32_t request_size; /* bytes of an MPI_Request */
    int32_t count;
    int32_t peer; /* 0, or MPI_PROC_NULL */
    int32_t n;    /* requests of a Waitall */
};
int bench_barrier(const void *calls);
int bench_send(const void *calls);
int bench_exchange(const void *calls);
/* n receives, the n sends that they match, one Waitall. */
int bench_burst(const void *calls);
/* Seconds of `loops` Waitalls alone; posting and sending are not timed. */
double bench_waitall(const struct bench_calls *calls, int64_t loops);

/* Calls of any functions that return 0 on success, in sequence. */
enum { BENCH_ARGUMENTS = 11 };
struct bench_call {
    void *function;
    uintptr_t arguments[BENCH_ARGUMENTS];
};
struct bench_sequence {
    const struct bench_call *calls;
    int64_t n;
};
int bench_calls_in_turn(const void *sequence);

/* The address of a wrapper of a function that does nothing, whose code lies in the sets of the
 * first cache in which that of another one does: an exported name of an interposer; 0: anywhere.
 * There are that many at a time. */
enum { BENCH_BARE_WRAPPERS = 2 };
uintptr_t bench_bare_wrapper(int which, uintptr_t function, uintptr_t as);

/* Seconds for tempi_datatype_layout on n datatypes not used before. */
double bench_first_use(int (*datatype_layout)(uintptr_t, const tempi_layout **),
                       const uintptr_t *types, int64_t n);
/* A type of random blocks that is created, used once and freed. */
struct bench_once {
    void *make; /* MPI_Type_create_indexed_block */
    void *commit;
    void *pack;
    void *sendrecv; /* NULL: it is packed, else received and sent */
    void *free;
    const int *places;
    uintptr_t inner;
    uintptr_t comm;
    char *memory;
    char *packed; /* or the memory of the received one */
    int32_t blocks;
    int32_t length; /* of each */
    int32_t room;   /* bytes at `packed` */
};
int bench_used_once(const void *once);
/* Seconds to start `path` in that environment and wait for its end, `loops` times. */
double bench_spawn(const char *path, char *const *environment, int64_t loops);

double bench_now(void);
/* `box` with the message's count as its outermost dimension. */
tempi_box bench_box_extend(const tempi_layout *layout, int i, int64_t count);

#pragma GCC visibility pop
#endif
