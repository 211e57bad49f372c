#include "shim/check.h"
#include "base/log.h"
#include "base/stats.h"
#include "shim/decode.h"

#include <stdlib.h>
#include <string.h>

/* A map of this many leaves takes a GiB: such a type is beyond checking. */
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

/* `count` copies of `inner` from `offset` on, one extent apart. */
static int repeat(tempi_typemap *map, const tempi_typemap *inner, int64_t offset, int64_t count)
{
    int status = TEMPI_OK;
    for (int64_t i = 0; i < count && status == TEMPI_OK; ++i)
        for (int64_t l = 0; l < inner->n && status == TEMPI_OK; ++l)
            status = push(map, offset + i * inner->extent + inner->leaves[l].offset, inner->leaves[l].size);
    return status;
}

/* Every constructor is a list of blocks (MPI-5.0 section 5.1): a block is a displacement in bytes
 * and a number of copies. This visits them for the constructors that have explicit ones. */
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

/* Subarray and darray: element by element through their global index is slow and obvious, but the
 * owner of an index needs the distribution's formula, which is what the layout itself is made by.
 * Subarrays are walked; darrays are outside this check. */
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
    /* Extents are the library's own answer: a third opinion, beside the layout's and this walk's. */
    MPI_Aint lb, extent;
    if (status == TEMPI_OK && tempi_lib.Type_get_extent(type, &lb, &extent) != MPI_SUCCESS)
        status = TEMPI_ERR_UNSUPPORTED;
    if (status == TEMPI_OK)
        map->extent = extent;
    return status;
}

int tempi_typemap_make(MPI_Datatype type, tempi_typemap **out)
{
    tempi_typemap *map = calloc(1, sizeof *map);
    if (!map)
        return TEMPI_ERR_MEMORY;
    map->holders = 1;
    const int status = map_of(type, map);
    if (status == TEMPI_OK) {
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

void tempi_check_op(const tempi_typemap *map, const tempi_op *op, const char *call)
{
    if (op->method != TEMPI_ON_HOST) /* this walk cannot touch a device's memory */
        return;
    if (!map)
        return;
    tempi_stat_add(TEMPI_STAT_checks, 1);
    const char *packed = op->packed;
    int64_t position = 0; /* in the packed stream */
    for (int64_t element = 0; element < op->count && position < op->first + op->n; ++element) {
        for (int64_t l = 0; l < map->n; ++l) {
            const char *memory = (const char *)op->mem + element * map->extent + map->leaves[l].offset;
            for (int64_t b = 0; b < map->leaves[l].size; ++b, ++position) {
                if (position < op->first || position >= op->first + op->n)
                    continue;
                if (memory[b] == packed[position - op->first])
                    continue;
                tempi_stat_add(TEMPI_STAT_check_failures, 1);
                TEMPI_LOG(TEMPI_LOG_ERROR,
                          "TEMPI_CHECK: %s: byte %lld of the packed stream (element %lld, leaf %lld) "
                          "differs from the type map",
                          call, (long long)position, (long long)element, (long long)l);
                return;
            }
        }
    }
}
