/* MPI_Pack and MPI_Unpack. Where the library's packed form is the type map's bytes (checked at
 * start), the two are interchangeable. */
#include "base/config.h"
#include "shim/act.h"
#include "shim/message.h"

/* The buffer has room for the message behind the position; anything else is the library's to say. */
static bool fits(const tempi_message *message, const void *packed, MPI_Count size, const MPI_Count *position,
                 MPI_Comm comm)
{
    return packed && position && comm != MPI_COMM_NULL && *position >= 0 &&
           message->op.n <= size - *position;
}

int tempi_act_Pack(const struct tempi_mpi *to, const void *inbuf, MPI_Count incount,
                   MPI_Datatype datatype, void *outbuf, MPI_Count outsize, MPI_Count *position,
                   MPI_Comm comm)
{
    tempi_message message;
    if (!tempi_config.no_pack && tempi_message_take(inbuf, incount, datatype, TEMPI_OP_PACK, &message) &&
        fits(&message, outbuf, outsize, position, comm)) {
        message.op.packed = (char *)outbuf + *position;
        tempi_message_pack(&message, "MPI_Pack");
        *position += message.op.n;
        return MPI_SUCCESS;
    }
    return tempi_fwd_Pack(to, inbuf, incount, datatype, outbuf, outsize, position, comm);
}

int tempi_act_Unpack(const struct tempi_mpi *to, const void *inbuf, MPI_Count insize,
                     MPI_Count *position, void *outbuf, MPI_Count outcount, MPI_Datatype datatype,
                     MPI_Comm comm)
{
    tempi_message message;
    if (!tempi_config.no_pack && tempi_message_take(outbuf, outcount, datatype, TEMPI_OP_UNPACK, &message) &&
        fits(&message, inbuf, insize, position, comm)) {
        message.op.packed = (char *)(uintptr_t)inbuf + *position;
        tempi_message_unpack(&message, message.op.n, "MPI_Unpack");
        *position += message.op.n;
        return MPI_SUCCESS;
    }
    return tempi_fwd_Unpack(to, inbuf, insize, position, outbuf, outcount, datatype, comm);
}
