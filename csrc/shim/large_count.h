/* large_count.h: large-count arguments on a library that has only the plain functions. */
#ifndef TEMPI_SHIM_NARROW_H
#define TEMPI_SHIM_NARROW_H
#include <stddef.h>

#include "mpi_table.h"

/* One (count, type) argument pair that the plain function can take: the pair itself where the count
 * fits in int, else one element of a helper type that is `count` elements of the type. */
struct tempi_big {
    int count;
    MPI_Datatype type;
    int owned; /* the type is a helper: tempi_big_free frees it */
};

/* False if the helper type cannot be made. */
int tempi_big_make(MPI_Count count, MPI_Datatype type, struct tempi_big *big);
void tempi_big_free(struct tempi_big *big);

/* Whose entries an array argument of a collective has. */
enum tempi_large_count_length {
    TEMPI_LARGE_COUNT_PEERS, /* the group that this process exchanges with */
    TEMPI_LARGE_COUNT_LOCAL, /* its own group */
    TEMPI_LARGE_COUNT_IN,    /* neighbours that it receives from */
    TEMPI_LARGE_COUNT_OUT    /* neighbours that it sends to */
};

enum { TEMPI_LARGE_COUNT_ARRAYS = 4 };

/* How many that is in this communicator, which is valid. An MPI error code, already raised. */
int tempi_large_count_entries(MPI_Comm comm, enum tempi_large_count_length length, int *n);

/* The narrowed arrays of one call; start with comm and kept, the rest zero. */
struct tempi_large_count {
    MPI_Comm comm;
    int kept;   /* a nonblocking call: the library may read the arrays until it completes */
    int failed; /* an MPI error code, already raised: some entry does not fit, or no memory */
    int used;
    int *arrays[TEMPI_LARGE_COUNT_ARRAYS];
};

/* An int copy; NULL for NULL and where `ignored` says so. */
const int *tempi_large_count_counts(struct tempi_large_count *narrow, const MPI_Count *from,
                                    enum tempi_large_count_length length, int ignored);
const int *tempi_large_count_aints(struct tempi_large_count *narrow, const MPI_Aint *from,
                                   enum tempi_large_count_length length, int ignored);
void tempi_large_count_end(struct tempi_large_count *narrow); /* after the call */

/* Arrays of nonblocking calls are kept until MPI_Finalize, equal ones once: the request that will
 * end their use is the library's own, and nothing tells when it completes. */
size_t tempi_large_count_kept_bytes(void);
void tempi_large_count_clear(void); /* after the library's finalize */

/* Whether this process is the root of a rooted collective (MPI_ROOT on an intercommunicator). */
int tempi_is_root(MPI_Comm comm, int root);

/* Raise MPI_ERR_COUNT at the object's error handler, and return it. */
int tempi_too_large_comm(MPI_Comm comm);
int tempi_too_large_file(MPI_File file);
int tempi_too_large_win(MPI_Win win);

#endif
