/* Ties records to the library's requests: attaches after a post, finishes after a completion. */
#ifndef TEMPI_SHIM_REQUEST_H
#define TEMPI_SHIM_REQUEST_H

#include "shim/p2p/unplanned.h"
#include "shim/request/record_ops.h"
#include "transfer/records.h"

/* The nonblocking operation of `message` was just posted in `comm` and returned `request`. If it
 * is complete it is finished at once; but a receive into device memory must not wait, so it gets
 * another *request. Else it gets a record. Takes over the message. Returns the error code for
 * the call that posted it. */
int tempi_request_attach(tempi_message *message, bool receives, MPI_Comm comm,
                         MPI_Request *request);

/* The same after a post that returned rc and may have set *made, which was MPI_REQUEST_NULL;
 * *request is the program's. If an error handler of the program returns, MPICH (4.0 and 5.0)
 * returns MPI_SUCCESS from the failed call and leaves the request unchanged: there is a request
 * only if the handle changed. */
int tempi_request_posted(int rc, MPI_Request made, tempi_message *message, bool receives,
                         MPI_Comm comm, MPI_Request *request);

/* The same for a message that was not planned, with memory of the staging pool. */
int tempi_unplanned_posted(int rc, MPI_Request made, const tempi_unplanned *message, void *buffer,
                           char *packed, bool receives, MPI_Comm comm, MPI_Request *request);

/* Makes a record from a message: takes over its staging buffer and retains its layout. NULL: no
 * memory, and the caller still owns the message. */
tempi_record *tempi_request_record(tempi_message *message, bool receives);
/* Pins the allocation of its device buffer, for a request that is not persistent. */
void tempi_request_pin(tempi_record *record);
/* The reverse: the message owns everything again, and the record is freed. */
void tempi_request_unrecord(tempi_record *record, tempi_message *message);

/* Unpacks the arrived bytes of several requests in one batch; sets records[i]->error on failure. */
void tempi_request_unpack(const tempi_op *ops, tempi_record *const *records, int n);
/* Unpacks the rest of one request that ended with `error`. */
void tempi_request_settle(tempi_record *record, int error, const MPI_Status *status);

/* Calls its communicator's error handler with `code` if the record has an error that was not yet
 * reported. Returns code, or MPI_SUCCESS if there is no error. */
int tempi_request_report(tempi_record *record, int code);

/* Sets up for the behaviour of this library version. */
void tempi_complete_learn(const char *version);

#endif
