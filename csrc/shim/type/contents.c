#include "shim/type/contents.h"
#include "base/allocate.h"

#include <stdlib.h>

#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
#define TEMPI_HAVE_VALUE_INDEX 1 /* the combiner is new in MPI-4.1 */
#endif

/* ---- reading envelope and contents ----------------------------------------------------------- */

int tempi_contents_count(MPI_Datatype type, tempi_contents *c)
{
    int rc;
    *c = (tempi_contents){0};
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
    tempi_contents c;
    const int status = tempi_contents_count(type, &c);
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

int tempi_contents_fetch(MPI_Datatype type, tempi_contents *c)
{
    if (c->combiner == MPI_COMBINER_NAMED)
        return TEMPI_OK;
    /* One block for all four arrays, widest elements first. */
    const size_t larges = (size_t)c->nlarge * sizeof(MPI_Count);
    const size_t addresses = (size_t)c->naddresses * sizeof(MPI_Aint);
    const size_t types = (size_t)c->ntypes * sizeof(MPI_Datatype);
    const size_t integers = (size_t)c->nintegers * sizeof(int);
    char *block = tempi_allocate_array(larges + addresses + types + integers + 1);
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
        rc = tempi_lib.Type_get_contents(type, (int)c->nintegers, (int)c->naddresses,
                                         (int)c->ntypes, c->integers, c->addresses, c->types);
    if (rc == MPI_SUCCESS)
        return TEMPI_OK;
    free(block);
    c->larges = NULL;
    return TEMPI_ERR_UNSUPPORTED;
}

int tempi_contents_read(MPI_Datatype type, tempi_contents *out)
{
    tempi_contents c;
    int status = tempi_contents_count(type, &c);
    if (status == TEMPI_OK)
        status = tempi_contents_fetch(type, &c);
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

/* ---- predefined types ------------------------------------------------------------------------ */

int64_t tempi_type_size(MPI_Datatype type)
{
    if (tempi_lib.Type_size_c) {
        MPI_Count size;
        return tempi_lib.Type_size_c(type, &size) == MPI_SUCCESS ? size : -1;
    }
    MPI_Count size;
    return tempi_lib.Type_size_x(type, &size) == MPI_SUCCESS ? size : -1;
}

int tempi_type_extent(MPI_Datatype type, int64_t *lb, int64_t *extent)
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
    status = c.ntypes == 2 ? pair_leaves(tempi_type_size(c.types[0]), tempi_type_size(c.types[1]),
                                         extent, out)
                           : TEMPI_ERR_UNSUPPORTED;
    tempi_contents_release(&c);
    return status;
}

int tempi_type_leaves(MPI_Datatype type, int combiner, tempi_leaves *out)
{
    int64_t lb, extent;
    const int64_t size = tempi_type_size(type);
    if (size < 0 || tempi_type_extent(type, &lb, &extent) != TEMPI_OK || lb != 0)
        return TEMPI_ERR_UNSUPPORTED;
    const int64_t value = pair_value_size(type);
    if (value > 0)
        return pair_leaves(value, (int64_t)sizeof(int), extent, out);
    if (combiner != MPI_COMBINER_NAMED && combiner != MPI_COMBINER_F90_REAL &&
        combiner != MPI_COMBINER_F90_COMPLEX && combiner != MPI_COMBINER_F90_INTEGER)
        return value_index_leaves(type, extent, out);
    /* Fewer significant bytes than the extent, and not a pair: their displacements are unknown. */
    if (size != extent)
        return TEMPI_ERR_UNSUPPORTED;
    *out = (tempi_leaves){1, {0, 0}, {size, 0}, extent};
    return TEMPI_OK;
}
