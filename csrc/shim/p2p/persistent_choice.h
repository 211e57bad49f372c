/* The method of a persistent request whose starts may have different ones, as messages that are
 * posted one by one (choose/message_trials.h). The library has two requests for it: one over the
 * program's buffer, whose handle is the program's, and one over packed bytes. */
#ifndef TEMPI_SHIM_PERSISTENT_CHOICE_H
#define TEMPI_SHIM_PERSISTENT_CHOICE_H

#include "choose/choose.h"
#include "pack/pack.h"
#include "shim/abi.h"

typedef struct tempi_persistent_choice {
    tempi_chooser chooser; /* the type's and the communicator's handles may be freed before */
    int class;             /* of the peer: TEMPI_PEER_* */
    tempi_operation operation;
    MPI_Request packed; /* MPI_REQUEST_NULL: the library has freed it */
    bool takes_packed;  /* the start in progress */
} tempi_persistent_choice;

/* Takes over the request over packed bytes. NULL: out of memory. `class`: of the peer, now. */
tempi_persistent_choice *tempi_persistent_choice_make(const tempi_chooser *chooser, int class,
                                                      tempi_operation operation,
                                                      MPI_Request packed);
/* NULL: does nothing. */
void tempi_persistent_choice_free(tempi_persistent_choice *choice);

/* At a start: sets choice->takes_packed, and whether op is streamed. */
void tempi_persistent_choice_begin(tempi_persistent_choice *choice, tempi_op *op);

#endif
