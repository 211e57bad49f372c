/* Counts calls with a derived datatype to functions in which tempi does not act
 * (base/fallback.h). */
#ifndef TEMPI_SHIM_FALLBACK_CALLS_H
#define TEMPI_SHIM_FALLBACK_CALLS_H

#include "base/fallback.h"
#include "base/thread.h"
#include "shim/bounce/bounce.h"

/* False if tempi is off in this thread, or inside the library's own functions. */
static inline bool tempi_fallback_wanted(void)
{
    return tempi_this_thread.disabled == 0 && tempi_this_thread.inside == 0;
}

/* Counts one call if a buffer that this process uses in it has a derived datatype, with the
 * bytes of all such buffers. In one-sided operations with a predefined type at the origin,
 * counts the bytes at the target. */
void tempi_fallback_note(int function, MPI_Comm comm, const tempi_bounce_argument *buffers, int n,
                         MPI_Count target_count, MPI_Datatype target);
/* The same for a call that reads or writes a file, whose view may have the derived datatype. */
void tempi_fallback_note_file(int function, MPI_File file, MPI_Count count, MPI_Datatype type);

#endif
