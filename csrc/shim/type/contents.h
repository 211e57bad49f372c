/* One level of an MPI datatype: the arguments of its constructor. */
#ifndef TEMPI_SHIM_CONTENTS_H
#define TEMPI_SHIM_CONTENTS_H

#include "shim/abi.h"
#include "tempi.h"

/* For all constructors: counts, lengths and displacements as 64-bit numbers in the order of
 * MPI-5.0 section 5.1.13. Displacements are in the unit of the constructor (elements or bytes). */
typedef struct tempi_contents {
    int combiner;
    bool large; /* made by a _c constructor: `larges` holds array_of_large_counts */
    int64_t nintegers, naddresses, nlarge, ntypes;
    int *integers;
    MPI_Aint *addresses;
    MPI_Count *larges;
    MPI_Datatype *types;
} tempi_contents;

/* Reads the combiner and the numbers of arguments; nothing needs to be released. */
int tempi_contents_count(MPI_Datatype type, tempi_contents *out);
/* Reads the arguments, except of a named type. */
int tempi_contents_fetch(MPI_Datatype type, tempi_contents *contents);
/* Does both. Returns TEMPI_OK or an error. Release with tempi_contents_release, which frees
 * derived inner handles. */
int tempi_contents_read(MPI_Datatype type, tempi_contents *out);
void tempi_contents_release(tempi_contents *contents);
int tempi_combiner_of(MPI_Datatype type, int *combiner);
bool tempi_combiner_predefined(int combiner);

/* Count, length or dimension number i of the constructor's arguments. */
static inline int64_t tempi_contents_number(const tempi_contents *c, int64_t i)
{
    return c->large ? (int64_t)c->larges[i] : c->integers[i];
}

/* Byte displacement number i; `skip` numbers come before them if all share one array. */
static inline int64_t tempi_contents_address(const tempi_contents *c, int64_t skip, int64_t i)
{
    return c->large ? (int64_t)c->larges[skip + i] : (int64_t)c->addresses[i];
}

/* The library's answers: -1, or a status other than TEMPI_OK, on failure. */
int64_t tempi_type_size(MPI_Datatype type);
int tempi_type_extent(MPI_Datatype type, int64_t *lb, int64_t *extent);

/* Size and extent of a predefined type, and its leaves: at most two. */
typedef struct tempi_leaves {
    int n;
    int64_t offset[2], size[2];
    int64_t extent;
} tempi_leaves;
int tempi_type_leaves(MPI_Datatype type, int combiner, tempi_leaves *out);

#endif
