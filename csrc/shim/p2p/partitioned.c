/* Partitioned messages in device memory, through host memory as a whole: each partition is
 * copied there when it is ready, and back when it has arrived. */
#include "shim/bounce/bounce.h"
#include "shim/impl.h"

#ifdef TEMPI_ACTS_IN_Psend_init

/* Describes all partitions as one buffer. False: nothing to do, or the call is left to the library.
 */
static bool described(const void *buf, int partitions, MPI_Count count, MPI_Datatype datatype,
                      int peer, int does, tempi_bounce_argument *out)
{
    MPI_Count all;
    if (!tempi_bounces() || peer == MPI_PROC_NULL || partitions <= 0 || count <= 0 ||
        __builtin_mul_overflow(count, (MPI_Count)partitions, &all))
        return false;
    *out = (tempi_bounce_argument){
        .address = buf, .does = does, .count = all, .type = datatype, .times = TEMPI_ONCE};
    return true;
}

#define DEFINE_INIT(NAME, BUFFER, DOES)                                                          \
    int tempi_impl_##NAME(const struct tempi_mpi *next, BUFFER buf, int partitions,              \
                          MPI_Count count, MPI_Datatype datatype, int peer, int tag,             \
                          MPI_Comm comm, MPI_Info info, MPI_Request *request)                    \
    {                                                                                            \
        tempi_bounce_argument buffer;                                                            \
        tempi_bounce *bounce;                                                                    \
        if (!described(buf, partitions, count, datatype, peer, DOES, &buffer))                   \
            return next->NAME(buf, partitions, count, datatype, peer, tag, comm, info, request); \
        int rc = tempi_bounce_open(TEMPI_OWNER_COMM(comm), &buffer, 1, TEMPI_BOUNCE_LATER,       \
                                   &bounce);                                                     \
        if (rc != MPI_SUCCESS)                                                                   \
            return rc;                                                                           \
        rc = next->NAME(buffer.given, partitions, count, datatype, peer, tag, comm, info,        \
                        request);                                                                \
        return tempi_bounce_attach_partitions(bounce, rc, partitions, request);                  \
    }

DEFINE_INIT(Psend_init, const void *, TEMPI_READS)
DEFINE_INIT(Precv_init, void *, TEMPI_WRITES)

int tempi_impl_Pready(const struct tempi_mpi *next, int partition, MPI_Request request)
{
    if (tempi_pending_any())
        tempi_post_all();
    const int rc = tempi_records_any() ? tempi_bounce_ready(request, partition, partition)
                                       : MPI_SUCCESS;
    return rc == MPI_SUCCESS ? next->Pready(partition, request) : rc;
}

int tempi_impl_Pready_range(const struct tempi_mpi *next, int first, int last, MPI_Request request)
{
    if (tempi_pending_any())
        tempi_post_all();
    const int rc = tempi_records_any() ? tempi_bounce_ready(request, first, last) : MPI_SUCCESS;
    return rc == MPI_SUCCESS ? next->Pready_range(first, last, request) : rc;
}

int tempi_impl_Pready_list(const struct tempi_mpi *next, int length, const int partitions[],
                           MPI_Request request)
{
    if (tempi_pending_any())
        tempi_post_all();
    int rc = MPI_SUCCESS;
    for (int i = 0; i < length && rc == MPI_SUCCESS && partitions && tempi_records_any(); ++i)
        rc = tempi_bounce_ready(request, partitions[i], partitions[i]);
    return rc == MPI_SUCCESS ? next->Pready_list(length, partitions, request) : rc;
}

int tempi_impl_Parrived(const struct tempi_mpi *next, MPI_Request request, int partition, int *flag)
{
    if (tempi_pending_any())
        tempi_progress();
    const int rc = next->Parrived(request, partition, flag);
    return rc == MPI_SUCCESS && *flag && tempi_records_any()
               ? tempi_bounce_arrived(request, partition)
               : rc;
}

#endif
