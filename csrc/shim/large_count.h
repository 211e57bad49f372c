/* large_count.h: large-count arguments for a library that has only the plain (int) functions. */
#ifndef TEMPI_SHIM_LARGE_COUNT_H
#define TEMPI_SHIM_LARGE_COUNT_H
#include <stddef.h>

#include "mpi_table.h"

/* One (count, type) argument pair for the plain function: the pair itself if the count fits in
 * int, else one element of a helper type that is `count` elements of the type. */
struct tempi_count_type {
    int count;
    MPI_Datatype type;
    int owned; /* `type` is a helper that tempi_count_type_free frees */
};

/* Returns 0 if the helper type cannot be made. */
int tempi_count_type_make(MPI_Count count, MPI_Datatype type, struct tempi_count_type *out);
void tempi_count_type_free(struct tempi_count_type *out);

/* The meaning of the entries of a collective's array argument. */
enum tempi_large_count_length {
    TEMPI_LARGE_COUNT_PEERS, /* the group that this process exchanges with */
    TEMPI_LARGE_COUNT_LOCAL, /* its own group */
    TEMPI_LARGE_COUNT_IN,    /* neighbours that it receives from */
    TEMPI_LARGE_COUNT_OUT    /* neighbours that it sends to */
};

enum { TEMPI_LARGE_COUNT_ARRAYS = 4 };

/* Sets *n to the number of such entries in this communicator, which must be valid. Returns an
 * MPI error code that was already raised. */
int tempi_large_count_entries(MPI_Comm comm, enum tempi_large_count_length length, int *n);

/* The int copies of one call's arrays; set comm and nonblocking, the rest zero. */
struct tempi_large_count {
    MPI_Comm comm;
    int nonblocking; /* the library may read the arrays until it completes */
    int failed;      /* MPI error code, already raised: an entry does not fit, or no memory */
    int used;
    int *arrays[TEMPI_LARGE_COUNT_ARRAYS];
};

/* An int copy of the array; NULL for NULL, if `ignored`, or on failure. */
const int *tempi_large_count_counts(struct tempi_large_count *call, const MPI_Count *from,
                                    enum tempi_large_count_length length, int ignored);
const int *tempi_large_count_aints(struct tempi_large_count *call, const MPI_Aint *from,
                                   enum tempi_large_count_length length, int ignored);
void tempi_large_count_end(struct tempi_large_count *call); /* after the call */

/* Arrays of nonblocking calls are cached until MPI_Finalize, equal ones once: the library owns
 * the request that ends their use, and nothing reports its completion. */
size_t tempi_large_count_cached_bytes(void);
void tempi_large_count_clear(void); /* after the library's finalize */

/* Whether this process is the root of a rooted collective (MPI_ROOT on an intercommunicator). */
int tempi_is_root(MPI_Comm comm, int root);

/* Raise MPI_ERR_COUNT at the object's error handler, and return it. */
int tempi_too_large_comm(MPI_Comm comm);
int tempi_too_large_file(MPI_File file);
int tempi_too_large_win(MPI_Win win);

#endif
