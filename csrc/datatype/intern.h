/* datatype/intern.h: equal layouts are one object. */
#ifndef TEMPI_DATATYPE_INTERN_H
#define TEMPI_DATATYPE_INTERN_H
#include "datatype/layout.h"

/* The interned layout equal to `object`, which is kept or freed; with one reference more. */
const tempi_layout *tempi_intern(tempi_layout_object *object);

#endif
