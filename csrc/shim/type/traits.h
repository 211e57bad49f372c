/* Properties of a datatype beyond its bytes: the input of tempi_quirk_operations and
 * tempi_rule_window. They are read from the constructors' arguments alone, so they are available
 * before a type is worth decoding. */
#ifndef TEMPI_SHIM_TRAITS_H
#define TEMPI_SHIM_TRAITS_H

#include "shim/type/contents.h"

enum { TEMPI_ELEMENT_SIZES = 5 }; /* 2, 4, 8, 16, 32 bytes */

typedef struct tempi_traits {
    bool complex;         /* a predefined complex type */
    bool stride_minus_1;  /* a vector of more than one block with a stride of -1 byte */
    bool negative_extent; /* contiguous copies of a type whose extent is negative */
    int64_t element;      /* bytes of the largest predefined member */
    int64_t unit;         /* greatest common divisor of all members' bytes */
    /* For elements of 2 << i bytes: their displacement modulo their size. TEMPI_NOWHERE: there
     * are none, TEMPI_ASTRAY: their displacements differ. */
    int8_t phase[TEMPI_ELEMENT_SIZES];
} tempi_traits;

enum { TEMPI_NOWHERE = -1, TEMPI_ASTRAY = -2 };

/* Traits of an empty type. */
tempi_traits tempi_traits_none(void);
/* Adds those of a predefined type. TEMPI_ERR_UNSUPPORTED: it is of an unknown kind. */
int tempi_traits_predefined(MPI_Datatype type, int combiner, const tempi_leaves *leaves,
                            tempi_traits *traits);
/* Applies a constructor other than a struct to the traits of its inner type of that extent. */
void tempi_traits_apply(const tempi_contents *c, int64_t extent, tempi_traits *traits);
/* Adds member i of a struct. */
void tempi_traits_member(const tempi_contents *c, int64_t i, int64_t extent,
                         const tempi_traits *inner, tempi_traits *traits);
/* Whether, in one element or several, there are elements of one size whose distance is not a
 * multiple of it. */
bool tempi_traits_astray(const tempi_traits *traits, int64_t extent);

/* Reads the traits of a type. TEMPI_ERR_UNSUPPORTED also if it has more levels and members than
 * the limit. */
int tempi_traits_read(MPI_Datatype type, tempi_traits *out);

#endif
