/* Datatypes that an MPI library is known to pack differently from the type map. The library is
 * never chosen for such a type: tempi carries the message whatever the rule says, and counts it. */
#ifndef TEMPI_SHIM_QUIRKS_H
#define TEMPI_SHIM_QUIRKS_H

#include "choose/rule.h"
#include "shim/type/traits.h"

/* The operations (bits 1 << TEMPI_OP_*) in which the library is wrong with the type. If the
 * layout is not known (NULL): those in which it may be wrong. */
unsigned tempi_quirk_operations(const tempi_traits *traits, int64_t extent,
                                const tempi_layout *layout, tempi_library library);

#endif
