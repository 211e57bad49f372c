/* large_count.c: see large_count.h. Helpers call the library's own PMPI functions. */
#include "shim/large_count.h"

#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* ---- one count and type ---------------------------------------------------------------------- */

/* Makes one type of `count` elements of `type`:
 *
 *   1. chunk  = INT_MAX elements
 *   2. whole  = all full chunks
 *   3. rest   = the remaining elements
 *   4. both, one after the other, with the bounds of MPI_Type_contiguous(count, type). */
static int big_build(int chunks, int left, MPI_Datatype type, MPI_Aint lb, MPI_Aint extent,
                     MPI_Datatype *out)
{
    MPI_Datatype chunk = MPI_DATATYPE_NULL, both = MPI_DATATYPE_NULL;
    MPI_Datatype parts[2] = {MPI_DATATYPE_NULL, MPI_DATATYPE_NULL};
    const MPI_Aint chunk_bytes = (MPI_Aint)INT_MAX * extent;
    const MPI_Aint places[2] = {0, chunks * chunk_bytes};
    const int ones[2] = {1, 1};
    const MPI_Aint total = places[1] + left * extent;
    int result = tempi_lib.Type_contiguous(INT_MAX, type, &chunk);
    if (result == MPI_SUCCESS)
        result = tempi_lib.Type_contiguous(chunks, chunk, &parts[0]);
    if (result == MPI_SUCCESS)
        result = tempi_lib.Type_contiguous(left, type, &parts[1]);
    if (result == MPI_SUCCESS)
        result = tempi_lib.Type_create_struct(2, ones, places, parts, &both);
    if (result == MPI_SUCCESS)
        result = tempi_lib.Type_create_resized(both, extent < 0 ? lb + total - extent : lb,
                                               extent < 0 ? -total : total, out);
    MPI_Datatype *const made[] = {&chunk, &parts[0], &parts[1], &both};
    for (int i = 0; i < 4; i++)
        if (*made[i] != MPI_DATATYPE_NULL)
            tempi_lib.Type_free(made[i]);
    return result;
}

int tempi_count_type_make(MPI_Count count, MPI_Datatype type, struct tempi_count_type *out)
{
    out->count = (int)count;
    out->type = type;
    if (TEMPI_FITS_INT(count))
        return 1;
    MPI_Aint lb, extent, bytes;
    if (count < 0 || count / INT_MAX > INT_MAX ||
        tempi_lib.Type_get_extent(type, &lb, &extent) != MPI_SUCCESS ||
        __builtin_mul_overflow((MPI_Aint)count, extent, &bytes))
        return 0;
    MPI_Datatype helper = MPI_DATATYPE_NULL;
    if (big_build((int)(count / INT_MAX), (int)(count % INT_MAX), type, lb, extent, &helper) !=
        MPI_SUCCESS)
        return 0;
    out->count = 1;
    out->type = helper;
    out->owned = 1;
    return tempi_lib.Type_commit(&out->type) == MPI_SUCCESS;
}

void tempi_count_type_free(struct tempi_count_type *out)
{
    if (out->owned)
        tempi_lib.Type_free(&out->type); /* deferred by the library while in use */
}

/* ---- arrays of counts and displacements ------------------------------------------------------ */

int tempi_is_root(MPI_Comm comm, int root)
{
    if (root == MPI_ROOT || root == MPI_PROC_NULL || comm == MPI_COMM_NULL)
        return root == MPI_ROOT;
    int inter = 0, rank = -1;
    if (tempi_lib.Comm_test_inter(comm, &inter) != MPI_SUCCESS || inter)
        return 0;
    return tempi_lib.Comm_rank(comm, &rank) == MPI_SUCCESS && rank == root;
}

static int neighbours(MPI_Comm comm, int *in, int *out)
{
    int topology = MPI_UNDEFINED, rank = 0, weighted;
    int result = tempi_lib.Topo_test(comm, &topology);
    if (result != MPI_SUCCESS)
        return result;
    *in = *out = 0; /* no topology: the library rejects the call itself */
    if (topology == MPI_DIST_GRAPH)
        return tempi_lib.Dist_graph_neighbors_count(comm, in, out, &weighted);
    if (topology == MPI_CART) {
        result = tempi_lib.Cartdim_get(comm, in);
        *in *= 2;
    } else if (topology == MPI_GRAPH) {
        result = tempi_lib.Comm_rank(comm, &rank);
        if (result == MPI_SUCCESS)
            result = tempi_lib.Graph_neighbors_count(comm, rank, in);
    }
    *out = *in;
    return result;
}

int tempi_large_count_entries(MPI_Comm comm, enum tempi_large_count_length length, int *n)
{
    int in = 0, out = 0, inter = 0;
    if (length == TEMPI_LARGE_COUNT_IN || length == TEMPI_LARGE_COUNT_OUT) {
        const int result = neighbours(comm, &in, &out);
        *n = length == TEMPI_LARGE_COUNT_IN ? in : out;
        return result;
    }
    int result = tempi_lib.Comm_test_inter(comm, &inter);
    if (result != MPI_SUCCESS)
        return result;
    return inter && length == TEMPI_LARGE_COUNT_PEERS ? tempi_lib.Comm_remote_size(comm, n)
                                                      : tempi_lib.Comm_size(comm, n);
}

/* Cached arrays of nonblocking calls. Equal arrays are stored once, so a program that repeats an
 * exchange, as most do, has one set. */
struct cached_array {
    struct cached_array *next;
    int n;
    int values[];
};

enum { CACHE_BUCKETS = 64, CACHE_WARN_BYTES = 64 << 20 };

static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
static struct cached_array *cached_arrays[CACHE_BUCKETS];
static size_t cached_bytes;

static struct cached_array **cache_home(const int *values, int n)
{
    uint32_t hash = 2166136261u;
    for (int i = 0; i < n; i++)
        hash = (hash ^ (uint32_t)values[i]) * 16777619u;
    return &cached_arrays[(hash >> 16) % CACHE_BUCKETS];
}

/* Takes over `values`; returns the array to use instead, or NULL if out of memory. */
static int *cached_intern(int *values, int n)
{
    const size_t bytes = (size_t)n * sizeof(int);
    pthread_mutex_lock(&cache_lock);
    struct cached_array **home = cache_home(values, n);
    struct cached_array *found = *home;
    while (found != NULL && (found->n != n || memcmp(found->values, values, bytes) != 0))
        found = found->next;
    if (found == NULL && (found = malloc(sizeof *found + bytes)) != NULL) {
        found->n = n;
        memcpy(found->values, values, bytes);
        found->next = *home;
        *home = found;
        cached_bytes += sizeof *found + bytes;
        if (cached_bytes > CACHE_WARN_BYTES)
            TEMPI_WARN_ONCE("more than 64 MiB of count arrays of nonblocking collectives are kept "
                            "until MPI_Finalize; this MPI has no large-count functions");
    }
    pthread_mutex_unlock(&cache_lock);
    free(values);
    return found != NULL ? found->values : NULL;
}

size_t tempi_large_count_cached_bytes(void)
{
    pthread_mutex_lock(&cache_lock);
    const size_t bytes = cached_bytes;
    pthread_mutex_unlock(&cache_lock);
    return bytes;
}

void tempi_large_count_clear(void)
{
    pthread_mutex_lock(&cache_lock);
    for (int i = 0; i < CACHE_BUCKETS; i++) {
        while (cached_arrays[i] != NULL) {
            struct cached_array *array = cached_arrays[i];
            cached_arrays[i] = array->next;
            free(array);
        }
    }
    cached_bytes = 0;
    pthread_mutex_unlock(&cache_lock);
}

/* Memory for the int copy of `from`; NULL if there is nothing to copy, or on failure (->failed). */
static int *large_count_allocate(struct tempi_large_count *call, const void *from,
                                 enum tempi_large_count_length length, int ignored, int *n)
{
    if (from == NULL || ignored || call->failed != MPI_SUCCESS || call->comm == MPI_COMM_NULL)
        return NULL;
    call->failed = tempi_large_count_entries(call->comm, length, n);
    if (call->failed != MPI_SUCCESS)
        return NULL;
    int *copy = malloc((size_t)(*n > 0 ? *n : 1) * sizeof *copy);
    if (copy == NULL)
        call->failed = tempi_too_large_comm(call->comm);
    return copy;
}

static const int *large_count_settle(struct tempi_large_count *call, int *copy, int n, int fits)
{
    if (!fits) {
        call->failed = tempi_too_large_comm(call->comm);
        free(copy);
        return NULL;
    }
    if (!call->nonblocking)
        return call->arrays[call->used++] = copy;
    int *cached = cached_intern(copy, n);
    if (cached == NULL)
        call->failed = tempi_too_large_comm(call->comm);
    return cached;
}

#define DEFINE_COPY(NAME, TYPE)                                            \
    const int *NAME(struct tempi_large_count *call, const TYPE *from,      \
                    enum tempi_large_count_length length, int ignored)     \
    {                                                                      \
        int n = 0, fits = 1;                                               \
        int *copy = large_count_allocate(call, from, length, ignored, &n); \
        if (copy == NULL)                                                  \
            return NULL;                                                   \
        for (int i = 0; i < n; i++) {                                      \
            fits &= TEMPI_FITS_INT(from[i]);                               \
            copy[i] = (int)from[i];                                        \
        }                                                                  \
        return large_count_settle(call, copy, n, fits);                    \
    }

DEFINE_COPY(tempi_large_count_counts, MPI_Count)
DEFINE_COPY(tempi_large_count_aints, MPI_Aint)

void tempi_large_count_end(struct tempi_large_count *call)
{
    for (int i = 0; i < call->used; i++)
        free(call->arrays[i]);
}

/* ---- the error ------------------------------------------------------------------------------- */

/* MPI's own error is raised at the object's handler; this logs the reason. */
static void explain(void)
{
    TEMPI_LOG(TEMPI_LOG_INFO, "a count does not fit in int, and this MPI has no function for it");
}

int tempi_too_large_comm(MPI_Comm comm)
{
    explain();
    tempi_lib.Comm_call_errhandler(comm == MPI_COMM_NULL ? MPI_COMM_SELF : comm, MPI_ERR_COUNT);
    return MPI_ERR_COUNT;
}

int tempi_too_large_file(MPI_File file)
{
    explain();
    tempi_lib.File_call_errhandler(file, MPI_ERR_COUNT);
    return MPI_ERR_COUNT;
}

int tempi_too_large_win(MPI_Win win)
{
    explain();
    tempi_lib.Win_call_errhandler(win, MPI_ERR_COUNT);
    return MPI_ERR_COUNT;
}
