#include "shim/type/decode.h"
#include "base/allocate.h"
#include "shim/type/decoded_members.h"

#include <stdlib.h>

#define number  tempi_contents_number
#define address tempi_contents_address

typedef struct decoder {
    int64_t most;  /* limit of numbers that a constructor lists */
    bool branched; /* below a struct: types may have several parents */
    tempi_memo memo;
} decoder;

static int decode_type(decoder *d, MPI_Datatype type, tempi_layout **out, tempi_traits *traits);

/* *entry: its number in the memo, found or added. */
static int decode_once(decoder *d, MPI_Datatype type, int64_t *entry)
{
    int combiner;
    int status = tempi_combiner_of(type, &combiner);
    if (status != TEMPI_OK)
        return status;
    const uint64_t identity = tempi_type_identity(type, tempi_combiner_predefined(combiner));
    if ((*entry = tempi_memo_find(&d->memo, identity)) >= 0)
        return TEMPI_OK;
    tempi_layout *layout;
    tempi_traits traits = tempi_traits_none();
    status = decode_type(d, type, &layout, &traits);
    if (status != TEMPI_OK)
        return status;
    *entry = tempi_memo_add(&d->memo, identity, layout, &traits);
    if (*entry >= 0)
        return TEMPI_OK;
    tempi_layout_free(layout);
    return TEMPI_ERR_MEMORY;
}

static int decode_predefined(MPI_Datatype type, int combiner, tempi_layout **out,
                             tempi_traits *traits)
{
    tempi_leaves leaves;
    int status = tempi_type_leaves(type, combiner, &leaves);
    if (status == TEMPI_OK)
        status = tempi_traits_predefined(type, combiner, &leaves, traits);
    if (status != TEMPI_OK)
        return status;
    if (leaves.n == 1)
        return tempi_layout_bytes(leaves.size[0], out);
    return tempi_layout_pair(leaves.size[0], leaves.offset[1], leaves.size[1], leaves.extent, out);
}

/* ---- constructors ---------------------------------------------------------------------------- */

static int64_t *numbers(const tempi_contents *c, int64_t first, int64_t n)
{
    int64_t *v = tempi_allocate_array((size_t)n * sizeof *v + 1);
    const tempi_contents from = *c; /* which the compiler knows to be none of v */
    for (int64_t i = 0; v && i < n; ++i)
        v[i] = number(&from, first + i);
    return v;
}

static int64_t *displacements(const tempi_contents *c, int64_t skip, int64_t n)
{
    int64_t *v = tempi_allocate_array((size_t)n * sizeof *v + 1);
    const tempi_contents from = *c;
    for (int64_t i = 0; v && i < n; ++i)
        v[i] = address(&from, skip, i);
    return v;
}

/* Element displacements, from number `first` on, times the inner extent. */
static int64_t *scaled(const tempi_contents *c, int64_t first, int64_t n, int64_t extent,
                       bool *overflow)
{
    int64_t *v = tempi_allocate_array((size_t)n * sizeof *v + 1);
    const tempi_contents from = *c;
    bool any = false;
    for (int64_t i = 0; v && i < n; ++i)
        any |= __builtin_mul_overflow(number(&from, first + i), extent, &v[i]);
    *overflow = any;
    return v;
}

static int decode_vector(const tempi_contents *c, const tempi_layout *inner, tempi_layout **out)
{
    int64_t stride;
    if (c->combiner == MPI_COMBINER_HVECTOR)
        stride = address(c, 2, 0);
    else if (__builtin_mul_overflow(number(c, 2), inner->extent, &stride))
        return TEMPI_ERR_OVERFLOW;
    return tempi_layout_hvector(number(c, 0), number(c, 1), stride, inner, out);
}

static int decode_indexed(const tempi_contents *c, const tempi_layout *inner, tempi_layout **out)
{
    const int64_t n = number(c, 0);
    bool overflow = false;
    int64_t *lengths = numbers(c, 1, n);
    int64_t *where = c->combiner == MPI_COMBINER_INDEXED
                         ? scaled(c, 1 + n, n, inner->extent, &overflow)
                         : displacements(c, 1 + n, n);
    int status = TEMPI_ERR_MEMORY;
    if (overflow)
        status = TEMPI_ERR_OVERFLOW;
    else if (lengths && where)
        status = tempi_layout_hindexed(n, lengths, where, inner, out);
    free(lengths);
    free(where);
    return status;
}

static int decode_block(const tempi_contents *c, const tempi_layout *inner, tempi_layout **out)
{
    const int64_t n = number(c, 0);
    bool overflow = false;
    int64_t *where = c->combiner == MPI_COMBINER_INDEXED_BLOCK
                         ? scaled(c, 2, n, inner->extent, &overflow)
                         : displacements(c, 2, n);
    int status = TEMPI_ERR_MEMORY;
    if (overflow)
        status = TEMPI_ERR_OVERFLOW;
    else if (where)
        status = tempi_layout_hindexed_block(n, number(c, 1), where, inner, out);
    free(where);
    return status;
}

/* The members of a struct. Each type is decoded once. All handles live while the contents do, so
 * most types are found by handle, without a call to the library. */
enum { RECENT_BITS = 6, RECENT = 1 << RECENT_BITS };

typedef struct members {
    int64_t *entries; /* for each member, its memo entry */
    const tempi_layout **inners;
    struct {
        MPI_Datatype handle;
        int64_t entry; /* entry number + 1 */
    } recent[RECENT];
} members;

static int members_decode(decoder *d, members *m, const tempi_contents *c, int64_t n,
                          tempi_traits *traits)
{
    for (int64_t i = 0; i < n; ++i) {
        const unsigned slot = tempi_handle_home(c->types[i], RECENT_BITS);
        if (!m->recent[slot].entry || m->recent[slot].handle != c->types[i]) {
            int64_t entry;
            const int status = decode_once(d, c->types[i], &entry);
            if (status != TEMPI_OK)
                return status;
            m->recent[slot].handle = c->types[i];
            m->recent[slot].entry = entry + 1;
        }
        m->entries[i] = m->recent[slot].entry - 1;
    }
    for (int64_t i = 0; i < n; ++i) {
        const tempi_memo_entry *entry = &d->memo.entries[m->entries[i]];
        m->inners[i] = entry->layout;
        tempi_traits_member(c, i, entry->extent, &entry->traits, traits);
    }
    return TEMPI_OK;
}

static int decode_struct(decoder *d, const tempi_contents *c, tempi_layout **out,
                         tempi_traits *traits)
{
    const int64_t n = number(c, 0);
    int status = TEMPI_ERR_MEMORY;
    int64_t *lengths = numbers(c, 1, n);
    int64_t *where = displacements(c, 1 + n, n);
    members m = {.entries = malloc((size_t)n * sizeof *m.entries + 1),
                 .inners = malloc((size_t)n * sizeof(tempi_layout *) + 1)};
    d->branched = d->branched || n > 1;
    if (lengths && where && m.entries && m.inners)
        status = members_decode(d, &m, c, n, traits);
    if (status == TEMPI_OK)
        status = tempi_layout_struct(n, lengths, where, m.inners, out);
    free(m.inners);
    free(m.entries);
    free(where);
    free(lengths);
    return status;
}

static int order_of(int order, int *out)
{
    if (order != MPI_ORDER_C && order != MPI_ORDER_FORTRAN)
        return TEMPI_ERR_UNSUPPORTED;
    *out = order == MPI_ORDER_C ? TEMPI_ORDER_C : TEMPI_ORDER_FORTRAN;
    return TEMPI_OK;
}

/* Plain: integers are ndims, sizes, subsizes, starts, order. Large: ndims and order are
 * integers, the arrays are large counts. */
static int decode_subarray(const tempi_contents *c, const tempi_layout *inner, tempi_layout **out)
{
    const int ndims = c->integers[0];
    int order;
    int status = order_of(c->integers[c->large ? 1 : 1 + 3 * ndims], &order);
    if (status != TEMPI_OK)
        return status;
    int64_t *v = numbers(c, c->large ? 0 : 1, 3 * (int64_t)ndims);
    if (!v)
        return TEMPI_ERR_MEMORY;
    status = tempi_layout_subarray(ndims, v, v + ndims, v + 2 * ndims, order, inner, out);
    free(v);
    return status;
}

static int distribution_of(int distribution)
{
    if (distribution == MPI_DISTRIBUTE_BLOCK)
        return TEMPI_DISTRIBUTE_BLOCK;
    if (distribution == MPI_DISTRIBUTE_CYCLIC)
        return TEMPI_DISTRIBUTE_CYCLIC;
    return distribution == MPI_DISTRIBUTE_NONE ? TEMPI_DISTRIBUTE_NONE : -1;
}

/* Plain: integers are size, rank, ndims, gsizes, distribs, dargs, psizes, order. Large: the same
 * without gsizes, which are the large counts. */
static int decode_darray(const tempi_contents *c, const tempi_layout *inner, tempi_layout **out)
{
    const int ndims = c->integers[2];
    const int *rest = c->integers + 3 + (c->large ? 0 : ndims);
    int order;
    int status = order_of(rest[3 * ndims], &order);
    int64_t *v = malloc(3 * (size_t)ndims * sizeof *v + 1);
    int *distributions = malloc((size_t)ndims * sizeof *distributions + 1);
    if (status == TEMPI_OK && (!v || !distributions))
        status = TEMPI_ERR_MEMORY;
    for (int i = 0; status == TEMPI_OK && i < ndims; ++i) {
        v[i] = number(c, c->large ? i : 3 + i);
        distributions[i] = distribution_of(rest[i]);
        v[ndims + i] = rest[ndims + i] == MPI_DISTRIBUTE_DFLT_DARG ? TEMPI_DISTRIBUTE_DFLT_DARG
                                                                   : rest[ndims + i];
        v[2 * ndims + i] = rest[2 * ndims + i];
    }
    if (status == TEMPI_OK)
        status = tempi_layout_darray(c->integers[0], c->integers[1], ndims, v, distributions,
                                     v + ndims, v + 2 * ndims, order, inner, out);
    free(distributions);
    free(v);
    return status;
}

static int decode_with_inner(const tempi_contents *c, const tempi_layout *inner, tempi_layout **out)
{
    switch (c->combiner) {
    case MPI_COMBINER_DUP: return tempi_layout_contiguous(1, inner, out);
    case MPI_COMBINER_CONTIGUOUS: return tempi_layout_contiguous(number(c, 0), inner, out);
    case MPI_COMBINER_VECTOR:
    case MPI_COMBINER_HVECTOR: return decode_vector(c, inner, out);
    case MPI_COMBINER_INDEXED:
    case MPI_COMBINER_HINDEXED: return decode_indexed(c, inner, out);
    case MPI_COMBINER_INDEXED_BLOCK:
    case MPI_COMBINER_HINDEXED_BLOCK: return decode_block(c, inner, out);
    case MPI_COMBINER_RESIZED:
        return tempi_layout_resized(address(c, 0, 0), address(c, 0, 1), inner, out);
    case MPI_COMBINER_SUBARRAY: return decode_subarray(c, inner, out);
    case MPI_COMBINER_DARRAY: return decode_darray(c, inner, out);
    default: return TEMPI_ERR_UNSUPPORTED;
    }
}

/* Takes the bounds from the library: libraries differ in the standard's rules for them (empty
 * types, resized members, padded structs), and the program sees its library's. */
static int adopt_bounds(MPI_Datatype type, tempi_layout **layout)
{
    int64_t lb, extent;
    tempi_layout *resized;
    if (tempi_type_extent(type, &lb, &extent) != TEMPI_OK)
        return TEMPI_ERR_UNSUPPORTED;
    if (lb == (*layout)->lb && extent == (*layout)->extent)
        return TEMPI_OK;
    const int status = tempi_layout_resized(lb, extent, *layout, &resized);
    if (status != TEMPI_OK)
        return status;
    tempi_layout_free(*layout);
    *layout = resized;
    return TEMPI_OK;
}

static int decode_shared(decoder *d, const tempi_contents *c, tempi_layout **out,
                         tempi_traits *traits)
{
    int64_t entry;
    const int status = decode_once(d, c->types[0], &entry);
    if (status != TEMPI_OK)
        return status;
    const tempi_layout *inner = d->memo.entries[entry].layout;
    *traits = d->memo.entries[entry].traits;
    tempi_traits_apply(c, inner->extent, traits);
    return decode_with_inner(c, inner, out);
}

static int decode_contents(decoder *d, MPI_Datatype type, const tempi_contents *c,
                           tempi_layout **out, tempi_traits *traits)
{
    if (tempi_combiner_predefined(c->combiner))
        return decode_predefined(type, c->combiner, out, traits);
    if (c->combiner == MPI_COMBINER_STRUCT)
        return decode_struct(d, c, out, traits);
    if (d->branched)
        return decode_shared(d, c, out, traits);
    tempi_layout *inner;
    int status = decode_type(d, c->types[0], &inner, traits);
    if (status != TEMPI_OK)
        return status;
    tempi_traits_apply(c, inner->extent, traits);
    status = decode_with_inner(c, inner, out);
    tempi_layout_free(inner);
    return status;
}

/* Whether its numbers are those of blocks, one by one, of which each takes time to decode. */
static bool lists_blocks(const tempi_contents *c)
{
    switch (c->combiner) {
    case MPI_COMBINER_INDEXED:
    case MPI_COMBINER_HINDEXED:
    case MPI_COMBINER_INDEXED_BLOCK:
    case MPI_COMBINER_HINDEXED_BLOCK:
    case MPI_COMBINER_STRUCT: return true;
    default: return false;
    }
}

static int decode_level(decoder *d, MPI_Datatype type, tempi_layout **out, tempi_traits *traits)
{
    tempi_contents c;
    int status = tempi_contents_count(type, &c);
    if (status == TEMPI_OK && lists_blocks(&c) && c.nintegers + c.naddresses + c.nlarge > d->most)
        return TEMPI_TOO_MANY;
    if (status == TEMPI_OK)
        status = tempi_contents_fetch(type, &c);
    if (status != TEMPI_OK)
        return status;
    status = decode_contents(d, type, &c, out, traits);
    tempi_contents_release(&c);
    return status;
}

static int decode_type(decoder *d, MPI_Datatype type, tempi_layout **out, tempi_traits *traits)
{
    tempi_layout *layout;
    int status = decode_level(d, type, &layout, traits);
    if (status != TEMPI_OK)
        return status;
    status = adopt_bounds(type, &layout);
    if (status != TEMPI_OK) {
        tempi_layout_free(layout);
        return status;
    }
    *out = layout;
    return TEMPI_OK;
}

int tempi_type_decode(MPI_Datatype type, int64_t most, tempi_layout **out, tempi_traits *traits)
{
    decoder d = {.most = most};
    *traits = tempi_traits_none();
    const int status = decode_type(&d, type, out, traits);
    tempi_memo_clear(&d.memo);
    return status;
}
