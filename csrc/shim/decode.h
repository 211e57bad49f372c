/* An MPI datatype handle, read back through envelope and contents into a Layout. */
#ifndef TEMPI_SHIM_DECODE_H
#define TEMPI_SHIM_DECODE_H

#include "shim/abi.h"
#include "tempi.h"

/* One level of a datatype, however it was made: counts, lengths and displacements as 64-bit
 * numbers in the order of MPI-5.0 section 5.1.13. Displacements are in the unit of the constructor
 * (elements or bytes). */
typedef struct tempi_contents {
    int combiner;
    bool large; /* made by a _c constructor: `values` is array_of_large_counts */
    int64_t nintegers, naddresses, nlarge, ntypes;
    int *integers;
    MPI_Aint *addresses;
    MPI_Count *larges;
    MPI_Datatype *types;
} tempi_contents;

/* TEMPI_OK, or why not. Release with tempi_contents_release, which frees derived inner handles. */
int tempi_contents_read(MPI_Datatype type, tempi_contents *out);
void tempi_contents_release(tempi_contents *contents);
int tempi_combiner_of(MPI_Datatype type, int *combiner);
bool tempi_combiner_predefined(int combiner);
/* Packed bytes of one element; below 0: not known. */
int64_t tempi_size_of(MPI_Datatype type);

/* What a datatype is made of, beyond its bytes, at any depth: the marks that tempi_wrong_class and
 * tempi_rule_window go by. */
typedef struct tempi_traits {
    bool complex;         /* a predefined complex type */
    bool stride_minus_1;  /* a vector of more than one block, one byte backwards apart */
    bool negative_extent; /* contiguous copies of a type whose extent is negative */
    int64_t element;      /* bytes of the largest predefined member */
    int64_t unit;         /* greatest common divisor of all members' bytes */
} tempi_traits;

/* The raw (not canonical) layout; the caller frees it with tempi_layout_free. Marks found are added
 * to *traits. */
int tempi_type_decode(MPI_Datatype type, tempi_layout **out, tempi_traits *traits);

/* Size and extent of a predefined type by its own leaves: at most two. */
typedef struct tempi_leaves {
    int n;
    int64_t offset[2], size[2];
    int64_t extent;
} tempi_leaves;
int tempi_type_leaves(MPI_Datatype type, int combiner, tempi_leaves *out);

#endif
