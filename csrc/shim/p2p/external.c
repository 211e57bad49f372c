/* MPI_Pack_external and MPI_Unpack_external: the library does them, on host memory in place of
 * device memory. Only the packed bytes from the position on are copied. */
#include "shim/bounce/bounce.h"
#include "shim/impl.h"

typedef enum side { TYPED, PACKED, SIDES } side;

/* Upper bound for the end of the packed bytes, so that no more are copied than the call uses. */
static MPI_Count end_of(const char datarep[], MPI_Count count, MPI_Datatype type, MPI_Count start,
                        MPI_Count size)
{
    MPI_Aint bytes;
    if (count < 0 || !TEMPI_FITS_INT(count) || type == MPI_DATATYPE_NULL ||
        tempi_lib.Pack_external_size(datarep, (int)count, type, &bytes) != MPI_SUCCESS ||
        bytes > size - start)
        return size;
    return start + bytes;
}

static bool ours(const MPI_Count *position, MPI_Count size)
{
    return tempi_bounces() && position && *position >= 0 && *position <= size;
}

/* The packed bytes from `position` up to `end`. */
static tempi_bounce_argument packed_side(const void *packed, MPI_Count position, MPI_Count end,
                                         int does)
{
    return (tempi_bounce_argument){.address = (const char *)packed + position,
                                   .does = does,
                                   .count = end - position,
                                   .type = MPI_BYTE,
                                   .times = TEMPI_ONCE};
}

static tempi_bounce_argument typed_side(const void *buffer, MPI_Count count, MPI_Datatype type,
                                        int does)
{
    return (tempi_bounce_argument){
        .address = buffer, .does = does, .count = count, .type = type, .times = TEMPI_ONCE};
}

int tempi_impl_Pack_external(const struct tempi_mpi *next, const char datarep[], const void *inbuf,
                             MPI_Count incount, MPI_Datatype datatype, void *outbuf,
                             MPI_Count outsize, MPI_Count *position)
{
    if (!ours(position, outsize))
        return tempi_fwd_Pack_external(next, datarep, inbuf, incount, datatype, outbuf, outsize,
                                       position);
    const MPI_Count start = *position;
    tempi_bounce_argument buffers[SIDES] = {
        typed_side(inbuf, incount, datatype, TEMPI_READS),
        packed_side(outbuf, start, end_of(datarep, incount, datatype, start, outsize),
                    TEMPI_WRITES | TEMPI_KEEPS)};
    tempi_bounce *bounce;
    int result = tempi_bounce_open(TEMPI_OWNER_COMM(MPI_COMM_SELF), buffers, SIDES,
                                   TEMPI_BOUNCE_NOW, &bounce);
    if (result != MPI_SUCCESS)
        return result;
    result = tempi_fwd_Pack_external(next, datarep, buffers[TYPED].given, incount, datatype,
                                     (char *)buffers[PACKED].given - start, outsize, position);
    return tempi_bounce_close(bounce, result);
}

int tempi_impl_Unpack_external(const struct tempi_mpi *next, const char datarep[],
                               const void *inbuf, MPI_Count insize, MPI_Count *position,
                               void *outbuf, MPI_Count outcount, MPI_Datatype datatype)
{
    if (!ours(position, insize))
        return tempi_fwd_Unpack_external(next, datarep, inbuf, insize, position, outbuf, outcount,
                                         datatype);
    const MPI_Count start = *position;
    tempi_bounce_argument buffers[SIDES] = {
        packed_side(inbuf, start, end_of(datarep, outcount, datatype, start, insize), TEMPI_READS),
        typed_side(outbuf, outcount, datatype, TEMPI_WRITES | TEMPI_KEEPS)};
    tempi_bounce *bounce;
    int result = tempi_bounce_open(TEMPI_OWNER_COMM(MPI_COMM_SELF), buffers, SIDES,
                                   TEMPI_BOUNCE_NOW, &bounce);
    if (result != MPI_SUCCESS)
        return result;
    result = tempi_fwd_Unpack_external(next, datarep, (char *)buffers[0].given - start, insize,
                                       position, buffers[1].given, outcount, datatype);
    return tempi_bounce_close(bounce, result);
}
