/* Counting of calls with a derived datatype in functions that tempi does not act in
 * (base/fallback.h). */
#ifndef TEMPI_SHIM_LEFT_COUNT_H
#define TEMPI_SHIM_LEFT_COUNT_H

#include "base/fallback.h"
#include "base/thread.h"
#include "shim/bounce/bounce.h"

/* Not where the thread has tempi off, nor what a library calls inside its own functions. */
static inline bool tempi_fallback_wanted(void)
{
    return tempi_this_thread.disabled == 0 && tempi_this_thread.inside == 0;
}

/* One call with these buffers: counted if one that this process takes part with has a derived
 * datatype, with the bytes of all such. In one-sided operations of predefined types at the origin,
 * those of the target. */
void tempi_fallback_note(int function, MPI_Comm comm, const tempi_bounce_argument *buffers, int n,
                         MPI_Count target_count, MPI_Datatype target);

#endif
