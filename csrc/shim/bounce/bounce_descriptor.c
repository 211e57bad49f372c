/* bounce_descriptor.c: finds the memory of a call's buffers and takes host memory in their
 * place. */
#include "shim/bounce/bounce_descriptor.h"
#include "cuda/device.h"
#include "memory/partition.h"
#include "shim/type/types.h"

/* ---- reading a buffer's description ---------------------------------------------------------- */

/* The entries of a buffer, in one form: `n` of them, or one of `count` elements. */
typedef struct entries {
    int64_t n;
    int64_t count; /* of a single entry; else the buffer's arrays give it */
    bool arrays;
} entries;

static bool sum_of(const tempi_bounce_argument *buffer, int64_t n, int64_t *sum)
{
    *sum = 0;
    for (int64_t i = 0; i < n; ++i)
        if (tempi_number_at(buffer->counts, i) < 0 ||
            __builtin_add_overflow(*sum, tempi_number_at(buffer->counts, i), sum))
            return false;
    return true;
}

/* False: an argument is invalid or unknown; leave it to the library. */
static bool entries_read(const tempi_owner *owner, const tempi_bounce_argument *buffer,
                         entries *out)
{
    int n = 1, rank = 0;
    if (buffer->times != TEMPI_ONCE &&
        (owner->comm == MPI_COMM_NULL ||
         tempi_large_count_entries(owner->comm, (enum tempi_large_count_length)buffer->times, &n) !=
             MPI_SUCCESS))
        return false;
    *out = (entries){.n = n, .arrays = buffer->counts.of && buffer->displacements.of};
    if (out->arrays)
        return true;
    out->n = 1;
    if (!buffer->counts.of)
        return !__builtin_mul_overflow(buffer->count, n, &out->count);
    if (!buffer->own)
        return sum_of(buffer, n, &out->count);
    if (tempi_lib.Comm_rank(owner->comm, &rank) != MPI_SUCCESS)
        return false;
    out->count = tempi_number_at(buffer->counts, rank);
    return true;
}

/* A duplicate that tempi did not see may be committed: if the library cannot read its address,
 * tempi adopts it rather than let the library find out. */
static const tempi_type *type_at(const tempi_bounce_argument *buffer, int64_t i)
{
    const MPI_Datatype handle = buffer->types ? buffer->types[i] : buffer->type;
    const tempi_type *type = tempi_type_any(handle);
    if (!type && tempi_memory_of(buffer->address) == TEMPI_MEMORY_DEVICE)
        type = tempi_type_adopt(handle);
    return type;
}

typedef enum seen {
    SEEN_NOTHING, /* no bytes */
    SEEN_PIECE,
    SEEN_WRONG /* left to the library */
} seen;

static seen entry_read(const tempi_bounce_argument *buffer, const entries *all, int64_t i,
                       tempi_bounce_buffer_piece *out)
{
    const int64_t count = all->arrays ? tempi_number_at(buffer->counts, i) : all->count;
    if (count <= 0)
        return count < 0 ? SEEN_WRONG : SEEN_NOTHING;
    const tempi_type *type = type_at(buffer, i);
    if (!type)
        return SEEN_WRONG;
    if (type->size == 0)
        return SEEN_NOTHING;
    int64_t at = all->arrays ? tempi_number_at(buffer->displacements, i) : 0;
    if (!buffer->in_bytes && __builtin_mul_overflow(at, type->layout->extent, &at))
        return SEEN_WRONG;
    /* No object lies in the first page: an address there is NULL, passed by mistake. */
    if ((uintptr_t)buffer->address + (uintptr_t)at + (uintptr_t)type->layout->true_lb < 4096)
        return SEEN_WRONG;
    *out = (tempi_bounce_buffer_piece){
        .layout = type->layout, .count = count, .displacement = at, .device = -1};
    return SEEN_PIECE;
}

/* Finds the memory of a piece, and its parts if they are in several. False: leave the
 * call to the library. */
static bool locate(const tempi_bounce_argument *buffer, tempi_bounce_buffer_piece *piece,
                   tempi_memory *memory)
{
    const char *const mem = (const char *)buffer->address + piece->displacement;
    tempi_memory_describe(mem + piece->layout->true_lb, memory);
    if (!tempi_memory_may_partition(piece->layout, piece->count, mem, memory))
        return true;
    const tempi_partition found = tempi_memory_partition(piece->layout, piece->count, mem, memory,
                                                         &piece->parts);
    for (int p = 0; found == TEMPI_PARTITION_MIXED && p < piece->parts->n; ++p)
        if (piece->parts->part[p].method != TEMPI_METHOD_HOST)
            *memory = (tempi_memory){.kind = TEMPI_MEMORY_DEVICE,
                                     .device = piece->parts->part[p].device};
    return found != TEMPI_PARTITION_UNKNOWN;
}

/* The requirements of a buffer. The first piece represents all, except with MPI_BOTTOM, whose types
 * may be in several memories, or if one piece is in several. */
typedef struct need {
    bool host, each;
    int device;     /* that the host memory stands for, unless `each` */
    uint64_t waits; /* as in tempi_bounce_descriptor */
} need;

_Static_assert(TEMPI_CUDA_DEVICES <= 64, "a bit for each");

static void need_add(need *out, const tempi_memory *memory)
{
    if (memory->kind == TEMPI_MEMORY_DEVICE) {
        out->host = true;
        out->device = memory->device;
    } else if (memory->kind == TEMPI_MEMORY_MANAGED) {
        out->waits |= (uint64_t)1 << (memory->device < 0 ? 0 : memory->device);
    }
}

static void need_find(const tempi_bounce_argument *buffer, const entries *all, need *out)
{
    *out = (need){.each = buffer->address == MPI_BOTTOM, .device = -1};
    for (int64_t i = 0; i < all->n; ++i) {
        tempi_bounce_buffer_piece piece;
        tempi_memory memory;
        const seen s = entry_read(buffer, all, i, &piece);
        if (s == SEEN_NOTHING)
            continue;
        if (s == SEEN_WRONG || !locate(buffer, &piece, &memory)) {
            *out = (need){.device = -1};
            return;
        }
        out->each |= piece.parts != NULL;
        tempi_parts_free(piece.parts);
        need_add(out, &memory);
        if (!out->each)
            return;
    }
}

/* ---- taking host memory ---------------------------------------------------------------------- */

static int host_fill_in(const tempi_bounce_argument *buffer, const entries *all, const need *what,
                        tempi_bounce_descriptor *h, bool *wrong)
{
    tempi_bounce_buffer_open(&h->host, buffer->address);
    int status = TEMPI_OK;
    for (int64_t i = 0; i < all->n && status == TEMPI_OK; ++i) {
        tempi_bounce_buffer_piece piece;
        tempi_memory memory = {.kind = TEMPI_MEMORY_DEVICE, .device = what->device};
        const seen s = entry_read(buffer, all, i, &piece);
        if (s == SEEN_NOTHING)
            continue;
        *wrong = s == SEEN_WRONG || (what->each && !locate(buffer, &piece, &memory));
        if (*wrong)
            break;
        piece.device = memory.kind == TEMPI_MEMORY_DEVICE ? memory.device : -1;
        status = tempi_bounce_buffer_add(&h->host, &piece);
    }
    return status == TEMPI_OK && !*wrong ? tempi_bounce_buffer_take(&h->host) : status;
}

int tempi_bounce_describe(const tempi_owner *owner, tempi_bounce_argument *buffer,
                          tempi_bounce_descriptor *h, bool *needed)
{
    entries all;
    need what;
    bool wrong = false;
    *needed = false;
    if (buffer->does == 0 || !entries_read(owner, buffer, &all))
        return TEMPI_OK;
    need_find(buffer, &all, &what);
    if (!what.host && !what.waits)
        return TEMPI_OK;
    *h = (tempi_bounce_descriptor){.does = buffer->does, .waits = what.waits};
    int status = TEMPI_OK;
    if (what.host)
        status = host_fill_in(buffer, &all, &what, h, &wrong);
    if (status == TEMPI_OK && !wrong) {
        if (what.host)
            buffer->given = h->host.given;
        *needed = true;
        return TEMPI_OK;
    }
    tempi_bounce_buffer_close(&h->host);
    return status;
}
