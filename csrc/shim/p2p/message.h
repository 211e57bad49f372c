/* One message: is it ours, and if so, its pack operation with a staging buffer. */
#ifndef TEMPI_SHIM_MESSAGE_H
#define TEMPI_SHIM_MESSAGE_H

#include "memory/kind.h"
#include "pack/pack.h"
#include "shim/p2p/wire.h"
#include "shim/type/types.h"

typedef struct tempi_message {
    const tempi_type *type;
    tempi_operation operation;
    tempi_op op;   /* op.packed: a buffer of op.n bytes (transfer/packed_buffer.h) */
    bool borrowed; /* that buffer is the caller's */
    MPI_Datatype
        wire; /* what its bytes go as: MPI_PACKED, or one element of a type with a gap (wire.h) */
    int32_t tables;      /* TEMPI_TABLES_OF_*, where op.method is a device's */
    tempi_sample sample; /* MPI_Pack and MPI_Unpack: started where the call is to be timed; not set
                            for messages */
} tempi_message;

/* The packed bytes of a short message that is over when the call is, on its stack. */
enum { TEMPI_INLINE_BYTES = 1 << 10 };
typedef struct tempi_inline_buffer {
    _Alignas(64) char bytes[TEMPI_INLINE_BYTES];
} tempi_inline_buffer;

/* Whom a message goes to or comes from, as the call names it. */
typedef struct tempi_peer {
    MPI_Comm comm; /* MPI_COMM_NULL: the call does not tell */
    int rank;
} tempi_peer;

/* How a query asks about one; `whom`: a tempi_peer. */
extern const tempi_query_peer tempi_message_peer;

/* MPI_Pack and MPI_Unpack have none. */
static inline tempi_peer tempi_peer_none(void)
{
    tempi_peer none;
    none.comm = MPI_COMM_NULL;
    none.rank = -1;
    return none;
}

static inline tempi_peer tempi_peer_of(MPI_Comm comm, int rank)
{
    tempi_peer other;
    other.comm = comm;
    other.rank = rank;
    return other;
}

/* The decision past the first look; takes the staging buffer, or `room` where there is one and the
 * message fits. */
bool tempi_message_plan(const tempi_type *type, const void *buffer, MPI_Count count,
                        tempi_operation operation, tempi_peer other, tempi_inline_buffer *room,
                        tempi_message *out);

/* The same from the start, where the buffer may be a device's. */
bool tempi_message_take_mixed(const void *buffer, MPI_Count count, MPI_Datatype datatype,
                              tempi_operation operation, tempi_peer other, tempi_message *out);

/* For calls that are over with their message: `room` lives as long. Otherwise as
 * tempi_message_take. */
static inline bool tempi_message_take_here(const void *buffer, MPI_Count count,
                                           MPI_Datatype datatype, tempi_operation operation,
                                           tempi_peer other, tempi_inline_buffer *room,
                                           tempi_message *out)
{
    if (tempi_memory_mixed)
        return tempi_message_take_mixed(buffer, count, datatype, operation, other, out);
    const tempi_type *type = tempi_type_use(datatype, count);
    return type && tempi_message_plan(type, buffer, count, operation, other, room, out);
}

/* True: the message is carried by tempi and *out must be given back by tempi_message_drop or moved
 * into a record. False: everything goes to the library as it came. */
static inline bool tempi_message_take(const void *buffer, MPI_Count count, MPI_Datatype datatype,
                                      tempi_operation operation, tempi_peer other,
                                      tempi_message *out)
{
    return tempi_message_take_here(buffer, count, datatype, operation, other, NULL, out);
}

/* The same for a message that tempi can carry, whether or not it wins: for MPI_Pack and MPI_Unpack
 * of host memory whose other side the library cannot reach. */
bool tempi_message_force(const void *buffer, MPI_Count count, MPI_Datatype datatype,
                         tempi_operation operation, tempi_message *out);
void tempi_message_drop(tempi_message *message);

/* Memory -> op.packed, op.packed -> memory (the first `bytes` of it); return when done. `call`
 * names the MPI function. On host memory they cannot fail; where a device does, MPI_ERR_OTHER,
 * which the caller hands to the communicator's error handler. */
int tempi_message_pack(const tempi_message *message, const char *call);
int tempi_message_unpack(const tempi_message *message, int64_t bytes, const char *call);
/* Counted and handed to the handler of comm; returns the error for the program. */
int tempi_message_failed(MPI_Comm comm);

/* Counts one operation that was carried out. */
void tempi_message_note(tempi_operation operation, const tempi_op *op);

/* Bytes that a completed receive of MPI_PACKED brought. */
int64_t tempi_status_bytes(const MPI_Status *status);

/* How many elements of message->wire it is. */
static inline MPI_Count tempi_wire_count(const tempi_message *message)
{
    return message->wire == MPI_PACKED ? message->op.n : 1;
}

/* A receive of n bytes ended with `error`: if that is MPI_ERR_TRUNCATE, how many bytes the library
 * has brought all the same, as it does into the memory of a receive of its own. Else 0. */
int64_t tempi_message_cut(int error, const MPI_Status *status, int64_t n);
/* Unpacks those. */
void tempi_message_unpack_cut(const tempi_message *message, int error, const MPI_Status *status,
                              const char *call);

#endif
