/* Datatypes that an MPI library is known to pack otherwise than the type map says. With such a
 * type the library is no candidate: tempi carries the message whatever the rule says, and counts
 * it. */
#ifndef TEMPI_SHIM_WRONG_H
#define TEMPI_SHIM_WRONG_H

#include "choose/rule.h"
#include "shim/type/traits.h"

/* The operations, as bits 1 << TEMPI_OP_*, that go wrong with it. Without a layout (NULL) those
 * that may. */
unsigned tempi_quirk_operations(const tempi_traits *traits, int64_t extent,
                                const tempi_layout *layout, tempi_library library);

#endif
