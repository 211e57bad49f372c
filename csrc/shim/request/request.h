/* Records and the library's requests: attaching after a post, finishing after a completion. */
#ifndef TEMPI_SHIM_REQUEST_H
#define TEMPI_SHIM_REQUEST_H

#include "shim/p2p/message.h"
#include "shim/request/record_ops.h"
#include "transfer/records.h"

/* The nonblocking operation of `message` was just posted in `comm` and returned `request`. Complete
 * already: it is finished here and now, but for a receive into device memory, which is not to be
 * waited for: that gets another *request. Else it gets a record. Takes the message over. Returns
 * what the call that posted it returns. */
int tempi_request_attach(tempi_message *message, bool receives, MPI_Comm comm,
                         MPI_Request *request);

/* The same after a post that returned rc and may have set *made, which was MPI_REQUEST_NULL;
 * *request is the program's. With an error handler of the program's that returns, MPICH (4.0
 * and 5.0) gives MPI_SUCCESS from a call that failed and leaves the request as it was: there is one
 * only where the handle changed. */
int tempi_request_posted(int rc, MPI_Request made, tempi_message *message, bool receives,
                         MPI_Comm comm, MPI_Request *request);

/* A record made from a message: takes over its staging buffer, holds its layout. NULL: no memory,
 * and the message is still the caller's. */
tempi_record *tempi_request_record(tempi_message *message, bool receives);
/* The other way: the message owns all again, the record is gone. */
void tempi_request_unrecord(tempi_record *record, tempi_message *message);

/* Unpacks what arrived for several requests, as one piece of work; records->error where that
 * failed. */
void tempi_request_unpack(const tempi_op *ops, tempi_record *const *records, int n);
/* All of it, for one request that ended with `error`. */
void tempi_request_settle(tempi_record *record, int error, const MPI_Status *status);

/* Hands the record's error to its communicator's handler as `code`, unless the handler knows of it;
 * returns code, or MPI_SUCCESS if there is no error. */
int tempi_request_tell(tempi_record *record, int code);

/* What the library of this version does. */
void tempi_complete_learn(const char *version);

#endif
