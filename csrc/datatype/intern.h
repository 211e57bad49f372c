/* datatype/intern.h: equal layouts are one object. */
#ifndef TEMPI_DATATYPE_INTERN_H
#define TEMPI_DATATYPE_INTERN_H
#include "datatype/layout.h"

/* Returns the interned layout equal to `object`, with one reference more. Takes `object` over:
 * interns or frees it. */
const tempi_layout *tempi_intern(tempi_layout_object *object);

#endif
