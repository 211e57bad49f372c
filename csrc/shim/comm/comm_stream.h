/* The CUDA stream that a communicator's messages are ordered after: an attribute of the
 * communicator. */
#ifndef TEMPI_SHIM_COMM_STREAM_H
#define TEMPI_SHIM_COMM_STREAM_H

#include "shim/abi.h"

/* tempi_comm_set_stream of tempi.h. */
int tempi_stream_set(uintptr_t comm, uintptr_t stream);

/* Set once any communicator has a stream; until then the attribute is not looked up. */
extern bool tempi_streams_named;
uintptr_t tempi_stream_look_up(MPI_Comm comm);

/* Returns 0 for the default rule. */
static inline uintptr_t tempi_stream_of(MPI_Comm comm)
{
    return __atomic_load_n(&tempi_streams_named, __ATOMIC_RELAXED) ? tempi_stream_look_up(comm) : 0;
}

/* Makes the communicator's stream current for all that the thread does, copies included, unless
 * the thread has named a stream itself. Pass the result of enter to leave. */
uintptr_t tempi_stream_enter(MPI_Comm comm);
void tempi_stream_leave(uintptr_t before);

/* Between init and finalize. */
void tempi_stream_start(void);
void tempi_stream_stop(void);

#endif
