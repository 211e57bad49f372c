/* The CUDA stream that a communicator's messages are ordered after: an attribute of it. */
#ifndef TEMPI_SHIM_STREAM_H
#define TEMPI_SHIM_STREAM_H

#include "shim/abi.h"

/* tempi_comm_set_stream of tempi.h. */
int tempi_stream_set(uintptr_t comm, uintptr_t stream);

/* Some communicator has had a stream: until then nobody looks. */
extern bool tempi_streams_named;
uintptr_t tempi_stream_look_up(MPI_Comm comm);

/* 0: the default rule. */
static inline uintptr_t tempi_stream_of(MPI_Comm comm)
{
    return __atomic_load_n(&tempi_streams_named, __ATOMIC_RELAXED) ? tempi_stream_look_up(comm) : 0;
}

/* For all that the thread does in between, unless it has named a stream itself: copies as well.
 * Leave with what enter returned. */
uintptr_t tempi_stream_enter(MPI_Comm comm);
void tempi_stream_leave(uintptr_t before);

/* Between init and finalize. */
void tempi_stream_start(void);
void tempi_stream_stop(void);

#endif
