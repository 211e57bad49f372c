/* Memory for the packed bytes of an operation, of the kind that its method needs. */
#ifndef TEMPI_TRANSFER_PACKED_H
#define TEMPI_TRANSFER_PACKED_H

#include "pack/pack.h"

#include <stdbool.h>

/* Sets op->packed to op->n bytes. Where memory of the method's kind is out, op->method becomes one
 * that does with another kind. False: none is left, or the operation would have to use memory that
 * the bound does not allow and `must` is not set. */
bool tempi_packed_get(tempi_op *op, bool must);
/* Gives it back, if there is any. */
void tempi_packed_put(tempi_op *op);

#endif
