/* Decodes an MPI datatype handle, through envelope and contents, into a Layout. */
#ifndef TEMPI_SHIM_DECODE_H
#define TEMPI_SHIM_DECODE_H

#include "shim/type/traits.h"

enum { TEMPI_TOO_MANY = -1 }; /* besides the TEMPI_ERR_* codes */

/* The raw (not canonical) layout; the caller frees it with tempi_layout_free. TEMPI_TOO_MANY: a
 * constructor was given more than `most` numbers. */
int tempi_type_decode(MPI_Datatype type, int64_t most, tempi_layout **out, tempi_traits *traits);

#endif
