#include "shim/decode.h"

#include <stdlib.h>
#include <string.h>

#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
#define TEMPI_HAVE_VALUE_INDEX 1 /* the combiner is new in MPI-4.1 */
#endif

/* ---- reading envelope and contents ------------------------------------------------------------ */

static int read_envelope(MPI_Datatype type, tempi_contents *c)
{
    int rc;
    if (tempi_lib.Type_get_envelope_c) {
        MPI_Count ni, na, nl, nt;
        rc = tempi_lib.Type_get_envelope_c(type, &ni, &na, &nl, &nt, &c->combiner);
        c->nintegers = ni;
        c->naddresses = na;
        c->nlarge = nl;
        c->ntypes = nt;
    } else {
        int ni, na, nt;
        rc = tempi_lib.Type_get_envelope(type, &ni, &na, &nt, &c->combiner);
        c->nintegers = ni;
        c->naddresses = na;
        c->nlarge = 0;
        c->ntypes = nt;
    }
    c->large = c->nlarge > 0;
    return rc == MPI_SUCCESS ? TEMPI_OK : TEMPI_ERR_UNSUPPORTED;
}

int tempi_combiner_of(MPI_Datatype type, int *combiner)
{
    tempi_contents c = {0};
    const int status = read_envelope(type, &c);
    if (status == TEMPI_OK)
        *combiner = c.combiner;
    return status;
}

bool tempi_combiner_predefined(int combiner)
{
#ifdef TEMPI_HAVE_VALUE_INDEX
    if (combiner == MPI_COMBINER_VALUE_INDEX)
        return true;
#endif
    return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL ||
           combiner == MPI_COMBINER_F90_COMPLEX || combiner == MPI_COMBINER_F90_INTEGER;
}

static int fetch_contents(MPI_Datatype type, tempi_contents *c)
{
    /* One block for all four arrays, widest elements first. */
    const size_t larges = (size_t)c->nlarge * sizeof(MPI_Count);
    const size_t addresses = (size_t)c->naddresses * sizeof(MPI_Aint);
    const size_t types = (size_t)c->ntypes * sizeof(MPI_Datatype);
    const size_t integers = (size_t)c->nintegers * sizeof(int);
    char *block = malloc(larges + addresses + types + integers + 1);
    if (!block)
        return TEMPI_ERR_MEMORY;
    c->larges = (MPI_Count *)(void *)block;
    c->addresses = (MPI_Aint *)(void *)(block + larges);
    c->types = (MPI_Datatype *)(void *)(block + larges + addresses);
    c->integers = (int *)(void *)(block + larges + addresses + types);
    int rc;
    if (tempi_lib.Type_get_contents_c)
        rc = tempi_lib.Type_get_contents_c(type, c->nintegers, c->naddresses, c->nlarge, c->ntypes,
                                           c->integers, c->addresses, c->larges, c->types);
    else
        rc = tempi_lib.Type_get_contents(type, (int)c->nintegers, (int)c->naddresses, (int)c->ntypes,
                                         c->integers, c->addresses, c->types);
    if (rc == MPI_SUCCESS)
        return TEMPI_OK;
    free(block);
    c->larges = NULL;
    return TEMPI_ERR_UNSUPPORTED;
}

int tempi_contents_read(MPI_Datatype type, tempi_contents *out)
{
    tempi_contents c = {0};
    int status = read_envelope(type, &c);
    if (status == TEMPI_OK && c.combiner != MPI_COMBINER_NAMED)
        status = fetch_contents(type, &c);
    if (status == TEMPI_OK)
        *out = c;
    return status;
}

void tempi_contents_release(tempi_contents *c)
{
    MPI_Datatype last = MPI_DATATYPE_NULL; /* predefined: structs repeat it */
    for (int64_t i = 0; c->larges && i < c->ntypes; ++i) {
        int combiner;
        if (c->types[i] == last || tempi_combiner_of(c->types[i], &combiner) != TEMPI_OK)
            continue;
        if (tempi_combiner_predefined(combiner))
            last = c->types[i];
        else
            tempi_lib.Type_free(&c->types[i]);
    }
    free(c->larges);
    c->larges = NULL;
}

/* Count, length or dimension number i of the constructor's arguments. */
static int64_t number(const tempi_contents *c, int64_t i)
{
    return c->large ? (int64_t)c->larges[i] : c->integers[i];
}

/* Byte displacement number i: `skip` numbers come first where all share one array. */
static int64_t address(const tempi_contents *c, int64_t skip, int64_t i)
{
    return c->large ? (int64_t)c->larges[skip + i] : (int64_t)c->addresses[i];
}

/* ---- predefined types ---------------------------------------------------------------------------- */

int64_t tempi_size_of(MPI_Datatype type)
{
    if (tempi_lib.Type_size_c) {
        MPI_Count size;
        return tempi_lib.Type_size_c(type, &size) == MPI_SUCCESS ? size : -1;
    }
    MPI_Count size;
    return tempi_lib.Type_size_x(type, &size) == MPI_SUCCESS ? size : -1;
}

static int extent_of(MPI_Datatype type, int64_t *lb, int64_t *extent)
{
    MPI_Aint l, e;
    if (tempi_lib.Type_get_extent(type, &l, &e) != MPI_SUCCESS)
        return TEMPI_ERR_UNSUPPORTED;
    *lb = l;
    *extent = e;
    return TEMPI_OK;
}

/* The C structs of the pair types for MINLOC and MAXLOC: {T value; int index;}. */
static int64_t pair_value_size(MPI_Datatype type)
{
    if (type == MPI_FLOAT_INT)
        return sizeof(float);
    if (type == MPI_DOUBLE_INT)
        return sizeof(double);
    if (type == MPI_LONG_INT)
        return sizeof(long);
    if (type == MPI_SHORT_INT)
        return sizeof(short);
    if (type == MPI_LONG_DOUBLE_INT)
        return sizeof(long double);
    return 0;
}

static int pair_leaves(int64_t value, int64_t index, int64_t extent, tempi_leaves *out)
{
    const int64_t offset = (value + index - 1) / index * index;
    if (index <= 0 || offset + index > extent)
        return TEMPI_ERR_UNSUPPORTED;
    *out = (tempi_leaves){2, {0, offset}, {value, index}, extent};
    return TEMPI_OK;
}

static int value_index_leaves(MPI_Datatype type, int64_t extent, tempi_leaves *out)
{
    tempi_contents c;
    int status = tempi_contents_read(type, &c);
    if (status != TEMPI_OK)
        return status;
    status = c.ntypes == 2 ? pair_leaves(tempi_size_of(c.types[0]), tempi_size_of(c.types[1]), extent, out)
                           : TEMPI_ERR_UNSUPPORTED;
    tempi_contents_release(&c);
    return status;
}

int tempi_type_leaves(MPI_Datatype type, int combiner, tempi_leaves *out)
{
    int64_t lb, extent;
    const int64_t size = tempi_size_of(type);
    if (size < 0 || extent_of(type, &lb, &extent) != TEMPI_OK || lb != 0)
        return TEMPI_ERR_UNSUPPORTED;
    const int64_t value = pair_value_size(type);
    if (value > 0)
        return pair_leaves(value, (int64_t)sizeof(int), extent, out);
    if (combiner != MPI_COMBINER_NAMED && combiner != MPI_COMBINER_F90_REAL &&
        combiner != MPI_COMBINER_F90_COMPLEX && combiner != MPI_COMBINER_F90_INTEGER)
        return value_index_leaves(type, extent, out);
    /* Fewer significant bytes than the extent, and no pair: where they lie is not for us to guess. */
    if (size != extent)
        return TEMPI_ERR_UNSUPPORTED;
    *out = (tempi_leaves){1, {0, 0}, {size, 0}, extent};
    return TEMPI_OK;
}

static bool is_complex(MPI_Datatype type, int combiner)
{
    return combiner == MPI_COMBINER_F90_COMPLEX || type == MPI_C_FLOAT_COMPLEX ||
           type == MPI_C_DOUBLE_COMPLEX || type == MPI_C_LONG_DOUBLE_COMPLEX ||
           type == MPI_COMPLEX || type == MPI_DOUBLE_COMPLEX || type == MPI_CXX_FLOAT_COMPLEX ||
           type == MPI_CXX_DOUBLE_COMPLEX || type == MPI_CXX_LONG_DOUBLE_COMPLEX;
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static int decode_predefined(MPI_Datatype type, int combiner, tempi_layout **out, tempi_traits *traits)
{
    tempi_leaves leaves;
    traits->complex |= is_complex(type, combiner);
    const int status = tempi_type_leaves(type, combiner, &leaves);
    if (status != TEMPI_OK)
        return status;
    for (int i = 0; i < leaves.n; ++i) {
        if (leaves.size[i] > traits->element)
            traits->element = leaves.size[i];
        traits->unit = common_divisor(traits->unit, leaves.size[i]);
    }
    if (leaves.n == 1)
        return tempi_layout_bytes(leaves.size[0], out);
    return tempi_layout_pair(leaves.size[0], leaves.offset[1], leaves.size[1], leaves.extent, out);
}

/* ---- constructors ----------------------------------------------------------------------------------- */

static int64_t *numbers(const tempi_contents *c, int64_t first, int64_t n)
{
    int64_t *v = malloc((size_t)n * sizeof *v + 1);
    for (int64_t i = 0; v && i < n; ++i)
        v[i] = number(c, first + i);
    return v;
}

static int64_t *displacements(const tempi_contents *c, int64_t skip, int64_t n)
{
    int64_t *v = malloc((size_t)n * sizeof *v + 1);
    for (int64_t i = 0; v && i < n; ++i)
        v[i] = address(c, skip, i);
    return v;
}

/* Element displacements, at `first` among the numbers, times the inner extent. */
static int64_t *scaled(const tempi_contents *c, int64_t first, int64_t n, int64_t extent, bool *overflow)
{
    int64_t *v = numbers(c, first, n);
    *overflow = false;
    for (int64_t i = 0; v && i < n; ++i)
        *overflow |= __builtin_mul_overflow(v[i], extent, &v[i]);
    return v;
}

static int decode_vector(const tempi_contents *c, const tempi_layout *inner, tempi_layout **out,
                         tempi_traits *traits)
{
    int64_t stride;
    if (c->combiner == MPI_COMBINER_HVECTOR)
        stride = address(c, 2, 0);
    else if (__builtin_mul_overflow(number(c, 2), inner->extent, &stride))
        return TEMPI_ERR_OVERFLOW;
    traits->stride_minus_1 |= stride == -1 && number(c, 0) > 1;
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

/* The members of a struct. A type that recurs is decoded once, or once more when RECENT others came
 * between: a million members are mostly of a few types. */
enum { RECENT_BITS = 6, RECENT = 1 << RECENT_BITS };

typedef struct members {
    tempi_layout **inners; /* one a member, shared */
    tempi_layout **owned;  /* each layout once */
    int64_t nowned;
    struct {
        MPI_Datatype handle;
        tempi_layout *layout;
    } recent[RECENT];
} members;

static int members_decode(members *m, const tempi_contents *c, int64_t n, tempi_traits *traits)
{
    for (int64_t i = 0; i < n; ++i) {
        const unsigned slot = tempi_handle_home(c->types[i], RECENT_BITS);
        if (!m->recent[slot].layout || m->recent[slot].handle != c->types[i]) {
            const int status = tempi_type_decode(c->types[i], &m->recent[slot].layout, traits);
            if (status != TEMPI_OK)
                return status;
            m->recent[slot].handle = c->types[i];
            m->owned[m->nowned++] = m->recent[slot].layout;
        }
        m->inners[i] = m->recent[slot].layout;
    }
    return TEMPI_OK;
}

static int decode_struct(const tempi_contents *c, tempi_layout **out, tempi_traits *traits)
{
    const int64_t n = number(c, 0);
    int status = TEMPI_ERR_MEMORY;
    int64_t *lengths = numbers(c, 1, n);
    int64_t *where = displacements(c, 1 + n, n);
    members m = {.inners = malloc(2 * ((size_t)n + 1) * sizeof *m.inners)};
    if (lengths && where && m.inners) {
        m.owned = m.inners + n + 1;
        status = members_decode(&m, c, n, traits);
        if (status == TEMPI_OK)
            status = tempi_layout_struct(n, lengths, where, (const tempi_layout *const *)m.inners, out);
    }
    for (int64_t i = 0; i < m.nowned; ++i)
        tempi_layout_free(m.owned[i]);
    free(m.inners);
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

/* Plain: integers are ndims, sizes, subsizes, starts, order. Large: ndims and order are integers,
 * the arrays large counts. */
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

static int decode_with_inner(const tempi_contents *c, const tempi_layout *inner, tempi_layout **out,
                             tempi_traits *traits)
{
    traits->negative_extent |= inner->extent < 0 && c->combiner == MPI_COMBINER_CONTIGUOUS;
    switch (c->combiner) {
    case MPI_COMBINER_DUP: return tempi_layout_contiguous(1, inner, out);
    case MPI_COMBINER_CONTIGUOUS: return tempi_layout_contiguous(number(c, 0), inner, out);
    case MPI_COMBINER_VECTOR:
    case MPI_COMBINER_HVECTOR: return decode_vector(c, inner, out, traits);
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

/* Bounds are the library's own: the standard's rules on them (empty types, resized members, padded
 * structs) are read differently by the libraries, and a program sees its library's. */
static int adopt_bounds(MPI_Datatype type, tempi_layout **layout)
{
    int64_t lb, extent;
    tempi_layout *resized;
    if (extent_of(type, &lb, &extent) != TEMPI_OK)
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

static int decode_level(MPI_Datatype type, tempi_layout **out, tempi_traits *traits)
{
    tempi_contents c;
    int status = tempi_contents_read(type, &c);
    if (status != TEMPI_OK)
        return status;
    if (tempi_combiner_predefined(c.combiner)) {
        status = decode_predefined(type, c.combiner, out, traits);
    } else if (c.combiner == MPI_COMBINER_STRUCT) {
        status = decode_struct(&c, out, traits);
    } else {
        tempi_layout *inner;
        status = tempi_type_decode(c.types[0], &inner, traits);
        if (status == TEMPI_OK) {
            status = decode_with_inner(&c, inner, out, traits);
            tempi_layout_free(inner);
        }
    }
    tempi_contents_release(&c);
    return status;
}

int tempi_type_decode(MPI_Datatype type, tempi_layout **out, tempi_traits *traits)
{
    tempi_layout *layout;
    int status = decode_level(type, &layout, traits);
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
