/* The differences between the ABIs that the generated table cannot express. */
#ifndef TEMPI_SHIM_ABI_H
#define TEMPI_SHIM_ABI_H

#include "mpi_table.h" /* mpi.h, with predefined handles that are no symbols */

#if defined(OMPI_MAJOR_VERSION)
#define TEMPI_ABI TEMPI_ABI_OPENMPI
#elif defined(MPICH_NAME)
#define TEMPI_ABI             TEMPI_ABI_MPICH
#define TEMPI_ABI_INT_HANDLES 1
#elif defined(MPI_ABI_VERSION)
#define TEMPI_ABI               TEMPI_ABI_STANDARD
#define TEMPI_ABI_SMALL_HANDLES 1
#else
#error "this mpi.h is of no ABI that tempi knows: MPICH, Open MPI or the standard ABI"
#endif

#include "base/hash.h"

#include <stdbool.h>
#include <stdint.h>

/* Handles as the engine sees them: an int is zero-extended, a pointer is itself. */
#ifdef TEMPI_ABI_INT_HANDLES
#define tempi_handle(h)      ((uintptr_t)(unsigned)(h))
#define tempi_request_of(u)  ((MPI_Request)(unsigned)(u))
#define tempi_comm_of(u)     ((MPI_Comm)(unsigned)(u))
#define tempi_datatype_of(u) ((MPI_Datatype)(unsigned)(u))
#else
#define tempi_handle(h)      ((uintptr_t)(h))
#define tempi_request_of(u)  ((MPI_Request)(u))
#define tempi_comm_of(u)     ((MPI_Comm)(u))
#define tempi_datatype_of(u) ((MPI_Datatype)(u))
#endif

/* Home slot of a handle in a hash table of 2^bits entries. */
static inline unsigned tempi_handle_home(MPI_Datatype type, unsigned bits)
{
    return (unsigned)tempi_hash_home(tempi_handle(type), bits);
}

/* Bytes received, from the status fields that are part of the ABI; -1: ask the library. */
static inline int64_t tempi_abi_status_bytes(const MPI_Status *status)
{
#if defined(OMPI_MAJOR_VERSION)
    return (int64_t)status->_ucount;
#elif defined(TEMPI_ABI_INT_HANDLES)
    const uint64_t high = (uint64_t)(unsigned)status->count_hi_and_cancelled >> 1;
    return (int64_t)(high << 32 | (unsigned)status->count_lo);
#else
    (void)status;
    return -1;
#endif
}

/* Recognizes named types by the handle alone, so that the common call costs one test. MPICH: the
 * two top bits of a built-in handle are 01 (10 for the pair types with holes). Standard ABI:
 * predefined handles are constants below 4096, pair types included, so the library handles
 * those. Open MPI: handles are addresses and allow no such test; the type cache answers. */
#if defined(TEMPI_ABI_INT_HANDLES) || defined(TEMPI_ABI_SMALL_HANDLES)
enum { TEMPI_ABI_TELLS_BUILTIN = 1 };
#else
enum { TEMPI_ABI_TELLS_BUILTIN = 0 };
#endif

static inline bool tempi_abi_builtin(MPI_Datatype type)
{
#if defined(TEMPI_ABI_INT_HANDLES)
    return ((unsigned)type & 0xC0000000u) == 0x40000000u;
#elif defined(TEMPI_ABI_SMALL_HANDLES)
    return (uintptr_t)type < 0x1000;
#else
    (void)type;
    return false;
#endif
}

/* Whether both surely are no derived types, by one comparison. MPICH: their top bits are 10 or 11;
 * 00 is MPI_DATATYPE_NULL. */
static inline bool tempi_abi_none_derived(MPI_Datatype a, MPI_Datatype b)
{
#if defined(TEMPI_ABI_INT_HANDLES)
    return (a | b) >= 0;
#elif defined(TEMPI_ABI_SMALL_HANDLES)
    return ((uintptr_t)a | (uintptr_t)b) < 0x1000;
#else
    (void)a, (void)b;
    return false;
#endif
}

#endif
