/* One message: the decision whether tempi carries it, its pack operation and its staging buffer. */
#ifndef TEMPI_SHIM_MESSAGE_H
#define TEMPI_SHIM_MESSAGE_H

#include "base/copy_bytes.h"
#include "base/stats.h"
#include "memory/kind.h"
#include "pack/pack.h"
#include "shim/p2p/wire.h"
#include "shim/type/types.h"

typedef struct tempi_message {
    const tempi_type *type;
    tempi_operation operation;
    tempi_op op;         /* op.packed: a buffer of op.n bytes (transfer/packed_buffer.h) */
    bool borrowed;       /* the caller owns that buffer */
    bool open;           /* each start may choose again whether tempi carries it */
    MPI_Datatype wire;   /* MPI_PACKED, or a type with a gap (wire.h) */
    int32_t tables;      /* TEMPI_TABLES_OF_*, if op.method is a device's */
    tempi_sample sample; /* only MPI_Pack and MPI_Unpack: started if the call is to be timed */
} tempi_message;

/* Holds the packed bytes of a short message on the stack of a call that completes it. */
typedef struct tempi_inline_buffer {
    _Alignas(64) char bytes[TEMPI_INLINE_BYTES + TEMPI_COPY_SHIFT_MOST];
} tempi_inline_buffer;

/* Where so many begin. */
static inline char *tempi_inline_sent(tempi_inline_buffer *buffer)
{
    return buffer->bytes;
}

static inline char *tempi_inline_received(tempi_inline_buffer *buffer, int64_t bytes)
{
    return buffer->bytes + tempi_copy_shift(bytes);
}

/* The destination or source of a message, as the call gives it. */
typedef struct tempi_peer {
    MPI_Comm comm; /* MPI_COMM_NULL: unknown */
    int rank;
} tempi_peer;

/* Answers a query about a peer; `whom`: a tempi_peer. */
extern const tempi_query_peer tempi_message_peer;

/* No object lies in the first page: such an address is NULL, passed by mistake, which the
 * library reports. (MPI_BOTTOM is NULL too, but then the type's own offsets are addresses.) */
static inline bool tempi_address_plausible(const void *buffer, const tempi_layout *layout)
{
    return (uintptr_t)buffer + (uintptr_t)layout->true_lb >= 4096;
}

/* For MPI_Pack and MPI_Unpack, which have no peer. */
static inline tempi_peer tempi_peer_none(void)
{
    tempi_peer none;
    none.comm = MPI_COMM_NULL;
    none.rank = -1;
    return none;
}

static inline tempi_peer tempi_peer_of(MPI_Comm comm, int rank)
{
    tempi_peer peer;
    peer.comm = comm;
    peer.rank = rank;
    return peer;
}

/* Decides after the first checks. Takes a staging buffer, or `inline_buffer` if it is not NULL
 * and the message fits. */
bool tempi_message_plan(const tempi_type *type, const void *buffer, MPI_Count count,
                        tempi_operation operation, tempi_peer peer,
                        tempi_inline_buffer *inline_buffer, tempi_message *out);

/* Names a message to find it again (choose/repeated.h). */
static inline uint64_t tempi_message_key(tempi_peer peer, MPI_Count count)
{
    return tempi_repeated_key(tempi_handle(peer.comm), peer.rank, count);
}

/* Whether the library carried the same message before, by choice: then it is counted again, and
 * nothing else needs to be found out; for host memory alone. It calls nothing: the entry then
 * passes the arguments on in their registers. The choice holds for threads that disabled tempi,
 * too. */
__attribute__((always_inline)) static inline bool tempi_message_is_left(MPI_Datatype datatype,
                                                                        MPI_Count count, int rank,
                                                                        MPI_Comm comm,
                                                                        tempi_operation operation)
{
    tempi_type *type = tempi_type_at_home(datatype);
    uint64_t *const passed = tempi_stats_passed();
    if (!passed || !type || tempi_passing.disabled != 0 ||
        !tempi_repeated_pass(&type->chooser.repeated[operation],
                             tempi_message_key(tempi_peer_of(comm, rank), count),
                             1 << TEMPI_MESSAGE_LIBRARY))
        return false;
    __atomic_store_n(passed, *passed + 1, __ATOMIC_RELAXED);
    return true;
}

/* Decides from the start, for a buffer that may be in device memory. */
bool tempi_message_take_mixed(const void *buffer, MPI_Count count, MPI_Datatype datatype,
                              tempi_operation operation, tempi_peer peer, tempi_message *out);

/* As tempi_message_take, for calls that complete their message: `inline_buffer` must live as
 * long. */
static inline bool tempi_message_take_here(const void *buffer, MPI_Count count,
                                           MPI_Datatype datatype, tempi_operation operation,
                                           tempi_peer peer, tempi_inline_buffer *inline_buffer,
                                           tempi_message *out)
{
    if (tempi_memory_mixed)
        return tempi_message_take_mixed(buffer, count, datatype, operation, peer, out);
    const tempi_type *type = tempi_type_use(datatype, count);
    return type && tempi_message_plan(type, buffer, count, operation, peer, inline_buffer, out);
}

/* A message of host memory that tempi carries, of MPI_PACKED. Its packed bytes are in staging
 * memory, which it takes over, or in memory of the caller, who must not drop it then. */
void tempi_message_of(const tempi_type *type, const void *buffer, MPI_Count count,
                      tempi_operation operation, void *packed, tempi_message *out);

/* For a message that is posted later, as often as the program likes: one that tempi carries, or
 * that it may carry at times (out->open). */
bool tempi_message_take_kept(const void *buffer, MPI_Count count, MPI_Datatype datatype,
                             tempi_operation operation, tempi_peer peer, tempi_message *out);

/* Whether tempi is expected to be faster with a message of so many packed bytes in host memory. */
bool tempi_message_wins(const tempi_type *type, tempi_operation operation, tempi_peer peer,
                        int64_t bytes);

/* True: tempi carries the message, and *out must be given back by tempi_message_drop or moved
 * into a record. False: pass all arguments on to the library. */
static inline bool tempi_message_take(const void *buffer, MPI_Count count, MPI_Datatype datatype,
                                      tempi_operation operation, tempi_peer peer,
                                      tempi_message *out)
{
    return tempi_message_take_here(buffer, count, datatype, operation, peer, NULL, out);
}

/* The same for any message that tempi can carry, even if the library is faster: for MPI_Pack and
 * MPI_Unpack of host memory where the library cannot reach the packed side. */
bool tempi_message_force(const void *buffer, MPI_Count count, MPI_Datatype datatype,
                         tempi_operation operation, tempi_message *out);
void tempi_message_drop(tempi_message *message);

/* Pack: memory -> op.packed; unpack: the first `bytes` of op.packed -> memory. Both return when
 * done. `call` names the MPI function. On host memory they cannot fail; if a device fails they
 * return MPI_ERR_OTHER, which the caller hands to the communicator's error handler. */
int tempi_message_pack(const tempi_message *message, const char *call);
int tempi_message_unpack(const tempi_message *message, int64_t bytes, const char *call);
/* Packs, or unpacks, n of them (of one direction) together: blocks on one device in one launch. The
 * same results; after an error the bytes of all are undefined. */
int tempi_messages_run(const tempi_message *const messages[], int n, const char *call);
/* Counts a device error, calls the error handler of comm, and returns the error for the program. */
int tempi_message_failed(MPI_Comm comm);

/* Counts one completed operation of n packed bytes. */
static inline void tempi_message_count(tempi_thread_cache *mine, tempi_operation operation,
                                       const tempi_layout *layout, int64_t count, int64_t n)
{
    static const int calls[] = {TEMPI_STAT_packs, TEMPI_STAT_unpacks, TEMPI_STAT_sends,
                                TEMPI_STAT_recvs};
    static const int sizes[] = {TEMPI_STAT_packed_bytes, TEMPI_STAT_unpacked_bytes,
                                TEMPI_STAT_sent_bytes, TEMPI_STAT_recv_bytes};
    tempi_stat_add_to(mine, calls[operation], 1);
    tempi_stat_add_to(mine, sizes[operation], n);
    tempi_stat_add_to(mine, TEMPI_STAT_runs, layout->runs * count);
}

/* The same, and how it was carried. */
void tempi_message_note(tempi_operation operation, const tempi_op *op);

/* Bytes that a completed receive of MPI_PACKED brought. */
int64_t tempi_status_bytes(const MPI_Status *status);

/* The count to pass with message->wire. */
static inline MPI_Count tempi_wire_count(const tempi_message *message)
{
    return message->wire == MPI_PACKED ? message->op.n : 1;
}

/* For a receive of n bytes that ended with `error`: if that is MPI_ERR_TRUNCATE, the bytes that the
 * library still delivered, as it does for its own receives. Else 0. */
int64_t tempi_message_cut(int error, const MPI_Status *status, int64_t n);
/* Unpacks those bytes. */
void tempi_message_unpack_cut(const tempi_message *message, int error, const MPI_Status *status,
                              const char *call);

#endif
