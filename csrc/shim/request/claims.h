/* The records of a call's requests, taken out of the table: the library may free a handle, and
 * another thread reuse it, before the call returns. */
#ifndef TEMPI_SHIM_CLAIMS_H
#define TEMPI_SHIM_CLAIMS_H

#include "shim/request/record_ops.h"

typedef struct tempi_claims {
    tempi_record *first, **last; /* by ascending index */
    bool receives;
} tempi_claims;

/* Claims those that are active, and puts into their places in the array what the library is to be
 * asked about: for a call that completes all requests none, if one has ended without the library.
 */
void tempi_claim_all(MPI_Request requests[], int64_t n, tempi_claims *out);
/* The same for a call that completes any or some of them. */
void tempi_claim_any(MPI_Request requests[], int64_t n, tempi_claims *out);
/* Its request is not complete: the record goes back, and the program's handle. */
void tempi_claim_put_back(tempi_record *record, MPI_Request requests[]);

#endif
