#include "shim/report/fallback_calls.h"
#include "base/stats.h"
#include "shim/report/file_views.h"
#include "shim/type/contents.h"
#include "shim/type/types.h"

/* Bytes of `count` elements if the type is derived (sets *derived); else 0. */
static int64_t bytes_of(int64_t count, MPI_Datatype type, bool *derived)
{
    int64_t size, bytes;
    if (count <= 0 || tempi_type_named(type) || !tempi_type_derived(type, &size))
        return 0;
    *derived = true;
    return __builtin_mul_overflow(count, size, &bytes) ? 0 : bytes;
}

/* Number of entries of its arrays, or of repetitions of its one count. */
static int entries_of(const tempi_bounce_argument *buffer, MPI_Comm comm)
{
    int n = 0;
    if (buffer->times == TEMPI_ONCE)
        return 1;
    if (comm == MPI_COMM_NULL ||
        tempi_large_count_entries(comm, (enum tempi_large_count_length)buffer->times, &n) !=
            MPI_SUCCESS)
        return 0;
    return n;
}

static int64_t bytes_of_entries(const tempi_bounce_argument *buffer, int n, bool *derived)
{
    int64_t bytes = 0;
    for (int i = 0; i < n; ++i)
        bytes += bytes_of(tempi_number_at(buffer->counts, i),
                          buffer->types ? buffer->types[i] : buffer->type, derived);
    return bytes;
}

/* Where only the process's own entry counts. */
static int64_t bytes_of_own(const tempi_bounce_argument *buffer, MPI_Comm comm, bool *derived)
{
    int rank;
    if (comm == MPI_COMM_NULL || tempi_lib.Comm_rank(comm, &rank) != MPI_SUCCESS)
        return 0;
    return bytes_of(tempi_number_at(buffer->counts, rank), buffer->type, derived);
}

static int64_t bytes_of_buffer(const tempi_bounce_argument *buffer, MPI_Comm comm, bool *derived)
{
    if (!buffer->does || (!buffer->types && tempi_type_named(buffer->type)))
        return 0;
    if (!buffer->counts.of)
        return buffer->types
                   ? 0
                   : entries_of(buffer, comm) * bytes_of(buffer->count, buffer->type, derived);
    return buffer->own ? bytes_of_own(buffer, comm, derived)
                       : bytes_of_entries(buffer, entries_of(buffer, comm), derived);
}

static void count_call(int function, int64_t bytes)
{
    tempi_fallback_add(function, bytes);
    tempi_stat_add(TEMPI_STAT_fallback_function, 1);
}

/* Bytes of a valid predefined type, which tempi_type_derived has seen; else 0. */
static int64_t bytes_of_named(int64_t count, MPI_Datatype type)
{
    int64_t bytes;
    const bool valid = count > 0 && type != MPI_DATATYPE_NULL && tempi_type_named(type);
    return valid && !__builtin_mul_overflow(count, tempi_type_size(type), &bytes) ? bytes : 0;
}

void tempi_fallback_note_file(int function, MPI_File file, MPI_Count count, MPI_Datatype type)
{
    bool derived = false;
    int64_t bytes = bytes_of(count, type, &derived);
    if (!derived && tempi_file_view_derived(file)) {
        bytes = bytes_of_named(count, type);
        derived = bytes > 0;
    }
    if (derived)
        count_call(function, bytes);
}

void tempi_fallback_note(int function, MPI_Comm comm, const tempi_bounce_argument *buffers, int n,
                         MPI_Count target_count, MPI_Datatype target)
{
    bool derived = false;
    int64_t bytes = 0;
    for (int i = 0; i < n; ++i)
        bytes += bytes_of_buffer(&buffers[i], comm, &derived);
    if (!derived)
        bytes = bytes_of(target_count, target, &derived);
    if (derived)
        count_call(function, bytes);
}
