/* Memory for the packed bytes of an operation, of the kind that its method needs. */
#ifndef TEMPI_TRANSFER_PACKED_BUFFER_H
#define TEMPI_TRANSFER_PACKED_BUFFER_H

#include "pack/pack.h"

#include <stdbool.h>

/* Sets op->packed to op->n bytes. If memory of the method's kind is out, op->method becomes one
 * that works with another kind. False: no method is left, or the memory would exceed the bound and
 * `must` is not set. */
bool tempi_packed_get(tempi_op *op, bool must);
/* Frees the buffer, if any. */
void tempi_packed_put(tempi_op *op);

#endif
