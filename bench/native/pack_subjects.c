/* pack_subjects.c: MPI_Pack and MPI_Unpack of any library, tempi's own functions, and memcpy. */
#include "native.h"

#include <string.h>

typedef int (*mpi_pack)(const void *, int, uintptr_t, void *, int, int *, uintptr_t);
typedef int (*mpi_unpack)(const void *, int, int *, void *, int, uintptr_t, uintptr_t);
typedef void (*engine_pack)(const tempi_layout *, int64_t, const void *, int64_t, int64_t, void *);

int bench_mpi_pack(const void *argument)
{
    const struct bench_transfer *t = argument;
    int position = 0;
    return ((mpi_pack)t->function)(t->memory, t->count, t->type, t->packed, (int)t->bytes,
                                   &position, t->comm);
}

int bench_mpi_unpack(const void *argument)
{
    const struct bench_transfer *t = argument;
    int position = 0;
    return ((mpi_unpack)t->function)(t->packed, (int)t->bytes, &position, t->memory, t->count,
                                     t->type, t->comm);
}

int bench_engine_pack(const void *argument)
{
    const struct bench_transfer *t = argument;
    ((engine_pack)t->function)(t->layout, t->count, t->memory, 0, t->bytes, t->packed);
    return 0;
}

/* tempi_unpack has the same parameters with the two buffers exchanged. */
int bench_engine_unpack(const void *argument)
{
    const struct bench_transfer *t = argument;
    ((engine_pack)t->function)(t->layout, t->count, t->packed, 0, t->bytes, t->memory);
    return 0;
}

int bench_memcpy(const void *argument)
{
    const struct bench_transfer *t = argument;
    memcpy(t->packed, t->memory, (size_t)t->bytes);
    return 0;
}
