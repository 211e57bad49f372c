/* Datatypes that an MPI library is known to pack otherwise than the type map says. With such a
 * type the library is no candidate: tempi carries the message whatever the rule says, and counts it. */
#ifndef TEMPI_SHIM_WRONG_H
#define TEMPI_SHIM_WRONG_H

#include "model/rule.h"
#include "shim/decode.h"

bool tempi_wrong_class(const tempi_traits *traits, const tempi_layout *layout, tempi_library library);

#endif
