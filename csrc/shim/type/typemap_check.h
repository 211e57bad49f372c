/* TEMPI_CHECK: the type map itself, leaf by leaf, as a second opinion on every pack and unpack.
 * Independent of Layouts: straight from envelope and contents. */
#ifndef TEMPI_SHIM_CHECK_H
#define TEMPI_SHIM_CHECK_H

#include "pack/pack.h"
#include "shim/abi.h"

/* The type map of one element, adjacent leaves merged. */
typedef struct tempi_typemap {
    int holders;
    int64_t n, capacity;
    int64_t extent;
    int64_t
        unit; /* a message of this type signature has a multiple of so many bytes; 0: not known */
    char name[160]; /* for reports */
    struct {
        int64_t offset, size;
    } *leaves;
} tempi_typemap;

int tempi_typemap_make(MPI_Datatype type, tempi_typemap **out);
/* One more holder, one fewer; NULL is allowed in both. */
tempi_typemap *tempi_typemap_retain(tempi_typemap *map);
void tempi_typemap_free(tempi_typemap *map);

/* After the operation: memory and packed bytes must agree. Reports the first difference with the
 * name of the call. So does a message that ends inside a predefined element: it was sent by another
 * type signature. A device's bytes are copied to the host for it, some at a time. */
void tempi_check_op(const tempi_typemap *map, const tempi_op *op, const char *call);
/* After a move of out->n bytes from strided memory to strided memory. */
void tempi_check_move(const tempi_typemap *to, const tempi_op *into, const tempi_typemap *from,
                      const tempi_op *out, const char *call);

#endif
