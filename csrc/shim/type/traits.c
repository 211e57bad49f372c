#include "shim/type/traits.h"

tempi_traits tempi_traits_none(void)
{
    tempi_traits none = {.element = 0};
    for (int i = 0; i < TEMPI_ELEMENT_SIZES; ++i)
        none.phase[i] = TEMPI_NOWHERE;
    return none;
}

/* ---- phases ---------------------------------------------------------------------------------- */

/* Places elements at `first` and at distances from it whose bits are all in `spread`. */
static void place(tempi_traits *traits, int64_t first, uint64_t spread)
{
    for (int i = 0; i < TEMPI_ELEMENT_SIZES; ++i) {
        const uint64_t mask = ((uint64_t)2 << i) - 1;
        if (traits->phase[i] < 0)
            continue;
        if (spread & mask)
            traits->phase[i] = TEMPI_ASTRAY;
        else
            traits->phase[i] = (int8_t)(((uint64_t)traits->phase[i] + (uint64_t)first) & mask);
    }
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

static void join(tempi_traits *traits, const tempi_traits *other)
{
    traits->complex |= other->complex;
    traits->stride_minus_1 |= other->stride_minus_1;
    traits->negative_extent |= other->negative_extent;
    if (other->element > traits->element)
        traits->element = other->element;
    traits->unit = common_divisor(traits->unit, other->unit);
    for (int i = 0; i < TEMPI_ELEMENT_SIZES; ++i) {
        if (traits->phase[i] == TEMPI_NOWHERE)
            traits->phase[i] = other->phase[i];
        else if (other->phase[i] != TEMPI_NOWHERE && other->phase[i] != traits->phase[i])
            traits->phase[i] = TEMPI_ASTRAY;
    }
}

bool tempi_traits_astray(const tempi_traits *traits, int64_t extent)
{
    tempi_traits several = *traits;
    place(&several, 0, (uint64_t)extent);
    for (int i = 0; i < TEMPI_ELEMENT_SIZES; ++i)
        if (several.phase[i] == TEMPI_ASTRAY)
            return true;
    return false;
}

/* ---- predefined types ------------------------------------------------------------------------ */

static bool is_complex(MPI_Datatype type, int combiner)
{
    return combiner == MPI_COMBINER_F90_COMPLEX || type == MPI_C_FLOAT_COMPLEX ||
           type == MPI_C_DOUBLE_COMPLEX || type == MPI_C_LONG_DOUBLE_COMPLEX ||
           type == MPI_COMPLEX || type == MPI_DOUBLE_COMPLEX || type == MPI_CXX_FLOAT_COMPLEX ||
           type == MPI_CXX_DOUBLE_COMPLEX || type == MPI_CXX_LONG_DOUBLE_COMPLEX;
}

int tempi_traits_predefined(MPI_Datatype type, int combiner, const tempi_leaves *leaves,
                            tempi_traits *traits)
{
    traits->complex |= is_complex(type, combiner);
    for (int n = 0; n < leaves->n; ++n) {
        tempi_traits leaf = tempi_traits_none();
        leaf.element = leaf.unit = leaves->size[n];
        for (int i = 0; i < TEMPI_ELEMENT_SIZES; ++i)
            if (leaves->size[n] == (int64_t)2 << i)
                leaf.phase[i] = (int8_t)(leaves->offset[n] & (leaves->size[n] - 1));
        join(traits, &leaf);
    }
    return TEMPI_OK;
}

/* ---- constructors ---------------------------------------------------------------------------- */

/* Displacements of the copies of the inner type: the first one, and (in `spread`) all bits of
 * the distances from it. */
typedef struct places {
    int64_t first;
    uint64_t spread;
} places;

static places in_vector(const tempi_contents *c, int64_t extent, tempi_traits *traits)
{
    const int64_t count = tempi_contents_number(c, 0), length = tempi_contents_number(c, 1);
    const uint64_t stride = c->combiner == MPI_COMBINER_HVECTOR
                                ? (uint64_t)tempi_contents_address(c, 2, 0)
                                : (uint64_t)tempi_contents_number(c, 2) * (uint64_t)extent;
    traits->stride_minus_1 |= (int64_t)stride == -1 && count > 1;
    return (places){0, (count > 1 ? stride : 0) | (length > 1 ? (uint64_t)extent : 0)};
}

/* Blocks at byte displacements, which come after one length or n lengths. */
static places in_blocks(const tempi_contents *c, int64_t extent)
{
    const bool one_length = c->combiner == MPI_COMBINER_HINDEXED_BLOCK;
    const int64_t n = tempi_contents_number(c, 0), skip = one_length ? 2 : 1 + n;
    const int64_t first = n > 0 ? tempi_contents_address(c, skip, 0) : 0;
    places p = {first, (uint64_t)extent};
    if (c->large)
        for (int64_t i = 0; i < n; ++i)
            p.spread |= (uint64_t)c->larges[skip + i] - (uint64_t)first;
    else
        for (int64_t i = 0; i < n; ++i)
            p.spread |= (uint64_t)c->addresses[i] - (uint64_t)first;
    return p;
}

void tempi_traits_apply(const tempi_contents *c, int64_t extent, tempi_traits *traits)
{
    places p = {0, (uint64_t)extent}; /* any multiples of the extent */
    switch (c->combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED: p.spread = 0; break;
    case MPI_COMBINER_CONTIGUOUS:
        traits->negative_extent |= extent < 0;
        if (tempi_contents_number(c, 0) <= 1)
            p.spread = 0;
        break;
    case MPI_COMBINER_VECTOR:
    case MPI_COMBINER_HVECTOR: p = in_vector(c, extent, traits); break;
    case MPI_COMBINER_HINDEXED:
    case MPI_COMBINER_HINDEXED_BLOCK: p = in_blocks(c, extent); break;
    default: break;
    }
    place(traits, p.first, p.spread);
}

void tempi_traits_member(const tempi_contents *c, int64_t i, int64_t extent,
                         const tempi_traits *inner, tempi_traits *traits)
{
    const int64_t n = tempi_contents_number(c, 0);
    tempi_traits member = *inner;
    place(&member, tempi_contents_address(c, 1 + n, i),
          tempi_contents_number(c, 1 + i) > 1 ? (uint64_t)extent : 0);
    join(traits, &member);
}

/* ---- a whole type ---------------------------------------------------------------------------- */

enum { MOST_VISITS = 64 };

static int read_type(MPI_Datatype type, int *visits, tempi_traits *out);

static int read_struct(const tempi_contents *c, int *visits, tempi_traits *out)
{
    int status = TEMPI_OK;
    for (int64_t i = 0; i < c->ntypes && status == TEMPI_OK; ++i) {
        tempi_traits inner = tempi_traits_none();
        int64_t lb, extent;
        status = read_type(c->types[i], visits, &inner);
        if (status == TEMPI_OK)
            status = tempi_type_extent(c->types[i], &lb, &extent);
        if (status == TEMPI_OK)
            tempi_traits_member(c, i, extent, &inner, out);
    }
    return status;
}

static int read_contents(MPI_Datatype type, const tempi_contents *c, int *visits, tempi_traits *out)
{
    tempi_leaves leaves;
    int64_t lb, extent;
    if (tempi_combiner_predefined(c->combiner)) {
        const int status = tempi_type_leaves(type, c->combiner, &leaves);
        return status == TEMPI_OK ? tempi_traits_predefined(type, c->combiner, &leaves, out)
                                  : status;
    }
    if (c->combiner == MPI_COMBINER_STRUCT)
        return read_struct(c, visits, out);
    int status = read_type(c->types[0], visits, out);
    if (status == TEMPI_OK)
        status = tempi_type_extent(c->types[0], &lb, &extent);
    if (status == TEMPI_OK)
        tempi_traits_apply(c, extent, out);
    return status;
}

static int read_type(MPI_Datatype type, int *visits, tempi_traits *out)
{
    tempi_contents c;
    if (++*visits > MOST_VISITS)
        return TEMPI_ERR_UNSUPPORTED;
    int status = tempi_contents_read(type, &c);
    if (status != TEMPI_OK)
        return status;
    status = read_contents(type, &c, visits, out);
    tempi_contents_release(&c);
    return status;
}

int tempi_traits_read(MPI_Datatype type, tempi_traits *out)
{
    int visits = 0;
    *out = tempi_traits_none();
    return read_type(type, &visits, out);
}
