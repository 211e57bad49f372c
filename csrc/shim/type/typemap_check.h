/* TEMPI_CHECK: compares every pack and unpack with the type map, leaf by leaf. Independent of
 * Layouts: built straight from envelope and contents. */
#ifndef TEMPI_SHIM_TYPEMAP_CHECK_H
#define TEMPI_SHIM_TYPEMAP_CHECK_H

#include "pack/pack.h"
#include "shim/abi.h"

/* The type map of one element, adjacent leaves merged. */
typedef struct tempi_typemap {
    int holders;
    int64_t n, capacity;
    int64_t extent;
    int64_t unit;   /* bytes of each message are a multiple of this; 0: unknown */
    char name[160]; /* for reports */
    struct {
        int64_t offset, size;
    } *leaves;
} tempi_typemap;

int tempi_typemap_make(MPI_Datatype type, tempi_typemap **out);
/* Adds or drops a reference; both allow NULL. */
tempi_typemap *tempi_typemap_retain(tempi_typemap *map);
void tempi_typemap_free(tempi_typemap *map);

/* After the operation: memory and packed bytes must agree. Reports the first difference with the
 * name of the call. Also reports a message that ends inside a predefined element: it was sent
 * with another type signature. Device bytes are copied to the host piece by piece. */
void tempi_check_op(const tempi_typemap *map, const tempi_op *op, const char *call);
/* After a move of out->n bytes from strided memory to strided memory. */
void tempi_check_move(const tempi_typemap *to, const tempi_op *into, const tempi_typemap *from,
                      const tempi_op *out, const char *call);

#endif
