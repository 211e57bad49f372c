/* interposer.h: between the interposer (libtempi.so) and the shim of one ABI (libtempi-<abi>.so).
 */
#ifndef TEMPI_INTERPOSER_DOOR_H
#define TEMPI_INTERPOSER_DOOR_H
#include <stdint.h>

/* What the interposer tells the shim; valid for the life of the process. */
struct tempi_interposer {
    uint64_t digest;     /* of the slots: a shim from another build is refused */
    int32_t abi;         /* TEMPI_ABI_* */
    int32_t off;         /* 1: only supply entries for names that the library lacks; act in none */
    const char *library; /* path of the MPI library */
    /* All take a name with its MPI_ prefix and return NULL if there is no such function or datum.
     * next: the MPI_X that comes after tempi; lib: the library's PMPI_X (MPI_X where it has no
     * PMPI twin); datum: the library's predefined object, as the program itself sees it. */
    void *(*next)(const char *name);
    void *(*lib)(const char *name);
    void *(*datum)(const char *name);
};

/* The one function that a shim exports, as "tempi_shim_load". Returns one entry per slot, in slot
 * order, or NULL with *reason set to why this shim cannot serve. */
typedef void *const *(*tempi_shim_load_fn)(const struct tempi_interposer *interposer,
                                           const char **reason);
__attribute__((visibility("default"))) void *const *tempi_shim_load(
    const struct tempi_interposer *interposer, const char **reason);

/* Generated: the entries of this shim. */
void *const *tempi_shim_entries(const struct tempi_interposer *interposer);

/* What an exported function returns on a library that has nothing to call. It is no library's error
 * code, and mpi4py's own mark for a function that is not there: it raises NotImplementedError. */
enum { TEMPI_UNAVAILABLE = -1431655766 /* 0xAAAAAAAA */ };

#endif
