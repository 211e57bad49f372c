/* interposer.h: between interposer (libtempi.so) and shim of one ABI (libtempi-<abi>.so). */
#ifndef TEMPI_INTERPOSER_INTERPOSER_H
#define TEMPI_INTERPOSER_INTERPOSER_H
#include <stdint.h>

/* Data that the interposer passes to the shim; valid for the life of the process. */
struct tempi_interposer {
    uint64_t digest;     /* of the slots: a shim from another build is refused */
    int32_t abi;         /* TEMPI_ABI_* */
    int32_t off;         /* 1: only supply entries for names that the library lacks */
    const char *library; /* path of the MPI library */
    /* All take a name with its MPI_ prefix and return NULL if there is no such function or datum.
     * next: the MPI_X that comes after tempi; lib: the library's PMPI_X (MPI_X if it has no
     * PMPI_X); datum: the library's predefined object, as the program sees it. */
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

/* Returned by an exported function that the library lacks. It is no library's error code. mpi4py
 * marks missing functions by it and raises NotImplementedError. */
enum { TEMPI_UNAVAILABLE = -1431655766 /* 0xAAAAAAAA */ };

#endif
