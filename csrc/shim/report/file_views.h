/* Files whose view has a derived datatype: what is read and written through it is laid out by that
 * type, also from and to plain memory. Kept for the statistics (fallback_calls.h). */
#ifndef TEMPI_SHIM_FILE_VIEWS_H
#define TEMPI_SHIM_FILE_VIEWS_H

#include "shim/abi.h"

#include <stdbool.h>

extern int tempi_file_views; /* number of such files that are open */

static inline bool tempi_file_views_any(void)
{
    return __atomic_load_n(&tempi_file_views, __ATOMIC_RELAXED) != 0;
}

/* After MPI_File_set_view. */
void tempi_file_view_set(MPI_File file, MPI_Datatype etype, MPI_Datatype filetype);
bool tempi_file_view_derived(MPI_File file);
/* Forgets a file before MPI_File_close, as another thread may get its handle then. Returns
 * whether it was known, to add it again if it could not be closed. */
bool tempi_file_view_drop(MPI_File file);
void tempi_file_view_add(MPI_File file);

#endif
