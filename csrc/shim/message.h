/* One message: is it ours, and if so, its pack operation with a staging buffer. */
#ifndef TEMPI_SHIM_MESSAGE_H
#define TEMPI_SHIM_MESSAGE_H

#include "pack/pack.h"
#include "shim/types.h"

typedef struct tempi_message {
    const tempi_type *type;
    tempi_operation operation;
    tempi_op op; /* op.packed: staging buffer of op.n bytes */
} tempi_message;

/* The decision past the first look; takes the staging buffer. */
bool tempi_message_plan(const tempi_type *type, const void *buffer, MPI_Count count,
                        tempi_operation operation, tempi_message *out);

/* True: the message is carried by tempi and *out must be given back by tempi_message_drop or moved
 * into a record. False: everything goes to the library as it came. */
static inline bool tempi_message_take(const void *buffer, MPI_Count count, MPI_Datatype datatype,
                                      tempi_operation operation, tempi_message *out)
{
    const tempi_type *type = tempi_type_find(datatype);
    return type && tempi_message_plan(type, buffer, count, operation, out);
}

void tempi_message_drop(tempi_message *message);

/* Memory -> op.packed, op.packed -> memory (the first `bytes` of it); return when done. `call` names
 * the MPI function. */
void tempi_message_pack(const tempi_message *message, const char *call);
void tempi_message_unpack(const tempi_message *message, int64_t bytes, const char *call);

/* Counts one operation that was carried out. */
void tempi_message_note(tempi_operation operation, const tempi_op *op);

/* Bytes that a completed receive of MPI_PACKED brought. */
int64_t tempi_status_bytes(const MPI_Status *status);

#endif
