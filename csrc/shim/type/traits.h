/* What a datatype is made of, beyond its bytes: the marks that tempi_quirk_class and
 * tempi_rule_window go by. They are read off the constructors' arguments alone, so that they are
 * known of a type whose layout is not worth working out yet. */
#ifndef TEMPI_SHIM_TRAITS_H
#define TEMPI_SHIM_TRAITS_H

#include "shim/type/contents.h"

enum { TEMPI_ELEMENT_SIZES = 5 }; /* 2, 4, 8, 16, 32 bytes */

typedef struct tempi_traits {
    bool complex;         /* a predefined complex type */
    bool stride_minus_1;  /* a vector of more than one block, one byte backwards apart */
    bool negative_extent; /* contiguous copies of a type whose extent is negative */
    int64_t element;      /* bytes of the largest predefined member */
    int64_t unit;         /* greatest common divisor of all members' bytes */
    /* For elements of 2 << i bytes: where they lie, modulo their size. TEMPI_NOWHERE: there are
     * none, TEMPI_ASTRAY: not all in the same place. */
    int8_t phase[TEMPI_ELEMENT_SIZES];
} tempi_traits;

enum { TEMPI_NOWHERE = -1, TEMPI_ASTRAY = -2 };

/* Of nothing. */
tempi_traits tempi_traits_none(void);
/* Adds what a predefined type is made of. TEMPI_ERR_UNSUPPORTED: it is of no kind that is known. */
int tempi_traits_predefined(MPI_Datatype type, int combiner, const tempi_leaves *leaves,
                            tempi_traits *traits);
/* What the constructor, no struct, makes of its inner type, whose extent is given. */
void tempi_traits_apply(const tempi_contents *c, int64_t extent, tempi_traits *traits);
/* Adds member i of a struct. */
void tempi_traits_member(const tempi_contents *c, int64_t i, int64_t extent,
                         const tempi_traits *inner, tempi_traits *traits);
/* Are there elements of one size whose distance is no multiple of it, in several of the type at the
 * latest? */
bool tempi_traits_astray(const tempi_traits *traits, int64_t extent);

/* All of a type. TEMPI_ERR_UNSUPPORTED: also if it has more levels and members than are looked at.
 */
int tempi_traits_read(MPI_Datatype type, tempi_traits *out);

#endif
