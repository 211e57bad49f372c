/* Functions that programs call before they pass device memory to MPI. The answer is yes if
 * the library or tempi supports it. */
#include "shim/comm/cuda_support.h"
#include "base/config.h"
#include "base/thread.h"
#include "cuda/driver.h"
#include "interposer/interposer.h"
#include "memory/kind.h"
#include "shim/comm/cuda_aware.h"
#include "shim/impl.h"

#include <stdio.h>
#include <string.h>

static int (*library_query)(int, int *);

void tempi_support_find(const struct tempi_interposer *interposer)
{
    union {
        void *address;
        int (*call)(int, int *);
    } found = {.address = interposer->lib("MPIX_GPU_query_support")};
    library_query = found.call;
}

/* The program may ask before it loads CUDA. */
static bool serves(void)
{
    return tempi_memory_mixed && tempi_cuda_possible() && tempi_this_thread.disabled == 0 &&
           !tempi_config.no_type_commit && tempi_cuda_probe() != TEMPI_CUDA_OFF;
}

static bool supported(void)
{
    return tempi_library_cuda_aware() || serves();
}

/* ---- the libraries' own queries ------------------------------------------------------------ */

int tempi_MPIX_Query_cuda_support(void)
{
    return supported() || tempi_cuda_aware_says() ? 1 : 0;
}

/* MPICH's function: kinds of GPU by number. If the library lacks it, this is the whole answer. */
int tempi_MPIX_GPU_query_support(int gpu_type, int *is_supported)
{
    enum { CUDA = 0 };
    int rc = MPI_SUCCESS;
    if (!is_supported)
        return library_query ? library_query(gpu_type, is_supported) : MPI_ERR_ARG;
    if (library_query)
        rc = library_query(gpu_type, is_supported);
    else
        *is_supported = 0;
    if (rc == MPI_SUCCESS && gpu_type == CUDA && supported())
        *is_supported = 1;
    return rc;
}

/* ---- mpi_memory_alloc_kinds (MPI-4.1, 12.4.3) ------------------------------------------------ */

static const char key[] = "mpi_memory_alloc_kinds";

/* Whether a comma-separated list contains the kind. */
static bool names(const char *list, const char *kind)
{
    const size_t n = strlen(kind);
    for (const char *at = list; (at = strstr(at, kind)) != NULL; at += n)
        if ((at == list || at[-1] == ',') && (at[n] == ',' || at[n] == '\0'))
            return true;
    return false;
}

/* Adds CUDA's kinds to the library's, or to the standard's default if it reports none. The side
 * document Memory Allocation Kinds allows more than were requested. */
static int add_kinds(int rc, MPI_Info *used)
{
    static const char *const kinds[] = {"cuda", "cuda:host", "cuda:device", "cuda:managed"};
    char value[MPI_MAX_INFO_VAL];
    int found = 0;
    if (rc != MPI_SUCCESS || !used || *used == MPI_INFO_NULL || !supported())
        return rc;
    if (tempi_lib.Info_get(*used, key, (int)sizeof value - 1, value, &found) != MPI_SUCCESS ||
        !found)
        strcpy(value, "mpi,system");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
        const size_t n = strlen(value);
        if (!names(value, kinds[i]) && n + strlen(kinds[i]) + 2 <= sizeof value)
            snprintf(value + n, sizeof value - n, "%s%s", n ? "," : "", kinds[i]);
    }
    tempi_lib.Info_set(*used, key, value);
    return rc;
}

int tempi_impl_Comm_get_info(const struct tempi_mpi *next, MPI_Comm comm, MPI_Info *info_used)
{
    return add_kinds(next->Comm_get_info(comm, info_used), info_used);
}

int tempi_impl_File_get_info(const struct tempi_mpi *next, MPI_File fh, MPI_Info *info_used)
{
    return add_kinds(next->File_get_info(fh, info_used), info_used);
}

#ifdef TEMPI_ACTS_IN_Session_get_info /* absent if mpi.h has no MPI_Session */
int tempi_impl_Session_get_info(const struct tempi_mpi *next, MPI_Session session,
                                MPI_Info *info_used)
{
    return add_kinds(next->Session_get_info(session, info_used), info_used);
}
#endif
