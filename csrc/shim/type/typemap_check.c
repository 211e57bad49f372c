#include "shim/type/typemap_check.h"
#include "base/log.h"
#include "base/stats.h"
#include "memory/copy.h"
#include "memory/kind.h"
#include "shim/type/contents.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A type map of this many leaves takes a GiB: larger types are not checked. */
enum { MOST_LEAVES = 1 << 26 };

static int push(tempi_typemap *map, int64_t offset, int64_t size)
{
    if (size == 0)
        return TEMPI_OK;
    if (map->n > 0 && map->leaves[map->n - 1].offset + map->leaves[map->n - 1].size == offset) {
        map->leaves[map->n - 1].size += size;
        return TEMPI_OK;
    }
    if (map->n == map->capacity) {
        const int64_t capacity = map->capacity ? 2 * map->capacity : 16;
        if (capacity > MOST_LEAVES)
            return TEMPI_ERR_UNSUPPORTED;
        void *grown = realloc(map->leaves, (size_t)capacity * sizeof *map->leaves);
        if (!grown)
            return TEMPI_ERR_MEMORY;
        map->leaves = grown;
        map->capacity = capacity;
    }
    map->leaves[map->n].offset = offset;
    map->leaves[map->n++].size = size;
    return TEMPI_OK;
}

/* Adds `count` copies of `inner` from `offset` on, one extent apart. */
static int repeat(tempi_typemap *map, const tempi_typemap *inner, int64_t offset, int64_t count)
{
    int status = TEMPI_OK;
    for (int64_t i = 0; i < count && status == TEMPI_OK; ++i)
        for (int64_t l = 0; l < inner->n && status == TEMPI_OK; ++l)
            status = push(map, offset + i * inner->extent + inner->leaves[l].offset,
                          inner->leaves[l].size);
    return status;
}

/* Every constructor is a list of blocks (MPI-5.0 section 5.1): a displacement in bytes and a
 * number of copies. This reads them for constructors with explicit blocks. */
static int64_t value(const tempi_contents *c, int64_t i)
{
    return c->large ? (int64_t)c->larges[i] : c->integers[i];
}

static int64_t place(const tempi_contents *c, int64_t skip, int64_t i)
{
    return c->large ? (int64_t)c->larges[skip + i] : (int64_t)c->addresses[i];
}

static int map_vector(const tempi_contents *c, const tempi_typemap *inner, tempi_typemap *map)
{
    const bool bytes = c->combiner == MPI_COMBINER_HVECTOR;
    const int64_t stride = bytes ? place(c, 2, 0) : value(c, 2) * inner->extent;
    int status = TEMPI_OK;
    for (int64_t i = 0; i < value(c, 0) && status == TEMPI_OK; ++i)
        status = repeat(map, inner, i * stride, value(c, 1));
    return status;
}

static int map_indexed(const tempi_contents *c, const tempi_typemap *inner, tempi_typemap *map)
{
    const int64_t n = value(c, 0);
    const bool block = c->combiner == MPI_COMBINER_INDEXED_BLOCK ||
                       c->combiner == MPI_COMBINER_HINDEXED_BLOCK;
    const bool elements = c->combiner == MPI_COMBINER_INDEXED ||
                          c->combiner == MPI_COMBINER_INDEXED_BLOCK;
    const int64_t skip = block ? 2 : 1 + n;
    int status = TEMPI_OK;
    for (int64_t i = 0; i < n && status == TEMPI_OK; ++i) {
        const int64_t where = elements ? value(c, skip + i) * inner->extent : place(c, skip, i);
        status = repeat(map, inner, where, block ? value(c, 1) : value(c, 1 + i));
    }
    return status;
}

static int map_of(MPI_Datatype type, tempi_typemap *map);

static int map_struct(const tempi_contents *c, tempi_typemap *map)
{
    const int64_t n = value(c, 0);
    int status = TEMPI_OK;
    for (int64_t i = 0; i < n && status == TEMPI_OK; ++i) {
        tempi_typemap inner = {0};
        status = map_of(c->types[i], &inner);
        if (status == TEMPI_OK)
            status = repeat(map, &inner, place(c, 1 + n, i), value(c, 1 + i));
        free(inner.leaves);
    }
    return status;
}

/* Subarrays and darrays could be mapped element by element through the global index, slowly and
 * simply. But the owner of an index needs the distribution's formula, which the layout itself
 * uses. So subarrays are mapped; darrays are not checked. */
static int map_subarray(const tempi_contents *c, const tempi_typemap *inner, tempi_typemap *map)
{
    const int ndims = c->integers[0];
    const int64_t base = c->large ? 0 : 1;
    const bool c_order = c->integers[c->large ? 1 : 1 + 3 * ndims] == MPI_ORDER_C;
    int64_t index[64] = {0};
    if (ndims > 64)
        return TEMPI_ERR_UNSUPPORTED;
    for (int d = 0; d < ndims; ++d)
        if (value(c, base + ndims + d) == 0)
            return TEMPI_OK;
    for (;;) {
        int64_t linear = 0;
        for (int k = 0; k < ndims; ++k) { /* slowest dimension first */
            const int d = c_order ? k : ndims - 1 - k;
            linear = linear * value(c, base + d) + value(c, base + 2 * ndims + d) + index[d];
        }
        const int status = repeat(map, inner, linear * inner->extent, 1);
        if (status != TEMPI_OK)
            return status;
        int k = ndims - 1;
        for (; k >= 0; --k) { /* fastest dimension first */
            const int d = c_order ? k : ndims - 1 - k;
            if (++index[d] < value(c, base + ndims + d))
                break;
            index[d] = 0;
        }
        if (k < 0)
            return TEMPI_OK;
    }
}

static int map_inner(const tempi_contents *c, const tempi_typemap *inner, tempi_typemap *map)
{
    switch (c->combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED: return repeat(map, inner, 0, 1);
    case MPI_COMBINER_CONTIGUOUS: return repeat(map, inner, 0, value(c, 0));
    case MPI_COMBINER_VECTOR:
    case MPI_COMBINER_HVECTOR: return map_vector(c, inner, map);
    case MPI_COMBINER_INDEXED:
    case MPI_COMBINER_HINDEXED:
    case MPI_COMBINER_INDEXED_BLOCK:
    case MPI_COMBINER_HINDEXED_BLOCK: return map_indexed(c, inner, map);
    case MPI_COMBINER_SUBARRAY: return map_subarray(c, inner, map);
    default: return TEMPI_ERR_UNSUPPORTED;
    }
}

static int map_predefined(MPI_Datatype type, int combiner, tempi_typemap *map)
{
    tempi_leaves leaves;
    int status = tempi_type_leaves(type, combiner, &leaves);
    for (int i = 0; status == TEMPI_OK && i < leaves.n; ++i)
        status = push(map, leaves.offset[i], leaves.size[i]);
    return status;
}

static int map_of(MPI_Datatype type, tempi_typemap *map)
{
    tempi_contents c;
    int status = tempi_contents_read(type, &c);
    if (status != TEMPI_OK)
        return status;
    if (tempi_combiner_predefined(c.combiner)) {
        status = map_predefined(type, c.combiner, map);
    } else if (c.combiner == MPI_COMBINER_STRUCT) {
        status = map_struct(&c, map);
    } else {
        tempi_typemap inner = {0};
        status = map_of(c.types[0], &inner);
        if (status == TEMPI_OK)
            status = map_inner(&c, &inner, map);
        free(inner.leaves);
    }
    tempi_contents_release(&c);
    /* Extents are the library's own: a check that is independent of the layout and of this map. */
    MPI_Aint lb, extent;
    if (status == TEMPI_OK && tempi_lib.Type_get_extent(type, &lb, &extent) != MPI_SUCCESS)
        status = TEMPI_ERR_UNSUPPORTED;
    if (status == TEMPI_OK)
        map->extent = extent;
    return status;
}

/* For the report: the name given by the program, if any, and the type's size and extent. */
static void describe(MPI_Datatype type, tempi_typemap *map)
{
    char name[MPI_MAX_OBJECT_NAME] = "";
    int length = 0;
    int64_t size = 0;
    for (int64_t l = 0; l < map->n; ++l)
        size += map->leaves[l].size;
    if (tempi_lib.Type_get_name(type, name, &length) != MPI_SUCCESS || length == 0)
        snprintf(name, sizeof name, "a datatype");
    snprintf(map->name, sizeof map->name, "%.60s (%lld bytes in %lld leaves, extent %lld)", name,
             (long long)size, (long long)map->n, (long long)map->extent);
}

int tempi_typemap_make(MPI_Datatype type, tempi_typemap **out)
{
    tempi_typemap *map = calloc(1, sizeof *map);
    if (!map)
        return TEMPI_ERR_MEMORY;
    map->holders = 1;
    const int status = map_of(type, map);
    if (status == TEMPI_OK) {
        describe(type, map);
        *out = map;
        return status;
    }
    tempi_typemap_free(map);
    *out = NULL;
    TEMPI_WARN_ONCE("TEMPI_CHECK cannot check some datatypes (%s)", tempi_status_string(status));
    return TEMPI_OK;
}

tempi_typemap *tempi_typemap_retain(tempi_typemap *map)
{
    if (map)
        __atomic_fetch_add(&map->holders, 1, __ATOMIC_RELAXED);
    return map;
}

void tempi_typemap_free(tempi_typemap *map)
{
    if (!map || __atomic_sub_fetch(&map->holders, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    free(map->leaves);
    free(map);
}

/* ---- reading bytes of any memory ------------------------------------------------------------- */

/* Copies memory that the host cannot read, one segment at a time. */
typedef struct reader {
    bool plain; /* all of it is host memory: no need to ask */
    char *copy;
    uintptr_t from;
    int64_t n;
} reader;

enum { WINDOW = 1 << 18 };

/* Bytes at the address, at most *n; sets *n to their number. NULL: they cannot be read. */
static const char *reader_at(reader *r, uintptr_t address, int64_t *n)
{
    tempi_memory memory;
    if (address - r->from < (uintptr_t)r->n) {
        const int64_t left = r->n - (int64_t)(address - r->from);
        *n = *n < left ? *n : left;
        return r->copy + (address - r->from);
    }
    if (r->plain ||
        tempi_memory_host_readable(tempi_memory_describe((const void *)address, &memory)))
        return (const char *)address;
    if (memory.kind != TEMPI_MEMORY_DEVICE || (!r->copy && !(r->copy = malloc(WINDOW))))
        return NULL;
    const int64_t known = memory.base ? memory.size - (int64_t)(address - memory.base) : *n;
    r->from = address;
    r->n = known < WINDOW ? known : WINDOW;
    if (tempi_memory_copy(r->copy, (const void *)address, r->n) != TEMPI_OK) {
        r->n = 0;
        return NULL;
    }
    *n = *n < r->n ? *n : r->n;
    return r->copy;
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* Position in the bytes of a message in type-map order or, without a map, in contiguous bytes. */
typedef struct cursor {
    const tempi_typemap *map;
    uintptr_t base;
    int64_t element, leaf, done; /* bytes of the leaf that were passed */
    reader reader;
} cursor;

static uintptr_t cursor_address(const cursor *w)
{
    if (!w->map)
        return w->base + (uintptr_t)w->done;
    return w->base +
           (uintptr_t)(w->element * w->map->extent + w->map->leaves[w->leaf].offset + w->done);
}

static int64_t cursor_left(const cursor *w)
{
    return w->map ? w->map->leaves[w->leaf].size - w->done : INT64_MAX;
}

static void cursor_by(cursor *w, int64_t n)
{
    w->done += n;
    if (!w->map || w->done < w->map->leaves[w->leaf].size)
        return;
    w->done = 0;
    if (++w->leaf == w->map->n) {
        w->leaf = 0;
        ++w->element;
    }
}

static void cursor_skip(cursor *w, int64_t n)
{
    while (n > 0) {
        const int64_t step = cursor_left(w) < n ? cursor_left(w) : n;
        cursor_by(w, step);
        n -= step;
    }
}

static void report(const cursor *w, int64_t position, const char *call)
{
    tempi_stat_add(TEMPI_STAT_check_failures, 1);
    TEMPI_LOG(
        TEMPI_LOG_ERROR,
        "TEMPI_CHECK: %s: byte %lld of the packed stream (element %lld, leaf %lld) of %s differs from the type map",
        call, (long long)position, (long long)w->element, (long long)w->leaf, w->map->name);
}

static void report_signature(const tempi_typemap *map, int64_t bytes, const char *call)
{
    tempi_stat_add(TEMPI_STAT_check_failures, 1);
    TEMPI_LOG(
        TEMPI_LOG_ERROR,
        "TEMPI_CHECK: %s: %lld bytes arrived for %s, whose data is a multiple of %lld bytes: the "
        "sender used another type signature",
        call, (long long)bytes, map->name, (long long)map->unit);
}

/* Compares n bytes from the packed position on. */
static void compare(cursor *a, cursor *b, int64_t position, int64_t n, const char *call)
{
    tempi_stat_add(TEMPI_STAT_checks, 1);
    for (const int64_t end = position + n; position < end;) {
        int64_t step = end - position;
        step = step < cursor_left(a) ? step : cursor_left(a);
        step = step < cursor_left(b) ? step : cursor_left(b);
        const char *left = reader_at(&a->reader, cursor_address(a), &step);
        const char *right = left ? reader_at(&b->reader, cursor_address(b), &step) : NULL;
        if (!right) {
            TEMPI_WARN_ONCE("TEMPI_CHECK: some memory cannot be read: not checked");
            break;
        }
        for (int64_t i = 0; memcmp(left, right, (size_t)step) != 0 && i < step; ++i) {
            if (left[i] == right[i])
                continue;
            report(a, position + i, call);
            goto done;
        }
        cursor_by(a, step);
        cursor_by(b, step);
        position += step;
    }
done:
    free(a->reader.copy);
    free(b->reader.copy);
}

void tempi_check_op(const tempi_typemap *map, const tempi_op *op, const char *call)
{
    if (!map || map->n == 0 || op->n <= 0)
        return;
    const bool plain = op->method == TEMPI_METHOD_HOST;
    cursor memory = {.map = map, .base = (uintptr_t)op->mem, .reader.plain = plain};
    cursor packed = {.base = (uintptr_t)op->packed,
                     .reader.plain = op->method != TEMPI_METHOD_DEVICE};
    cursor_skip(&memory, op->first);
    compare(&memory, &packed, op->first, op->n, call);
    if (op->direction == TEMPI_UNPACK && map->unit > 1 && (op->first + op->n) % map->unit != 0)
        report_signature(map, op->first + op->n, call);
}

void tempi_check_move(const tempi_typemap *to, const tempi_op *into, const tempi_typemap *from,
                      const tempi_op *out, const char *call)
{
    if (!to || !from || to->n == 0 || from->n == 0)
        return;
    cursor a = {.map = to, .base = (uintptr_t)into->mem},
           b = {.map = from, .base = (uintptr_t)out->mem};
    compare(&a, &b, 0, out->n, call);
}
