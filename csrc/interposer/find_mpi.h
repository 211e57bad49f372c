/* find_mpi.h: the MPI library in this process. */
#ifndef TEMPI_INTERPOSER_FIND_H
#define TEMPI_INTERPOSER_FIND_H
#include <limits.h>
#include <stdint.h>

/* The MPI library that was found; stays valid, since an MPI library cannot be unloaded. */
struct tempi_found {
    int32_t abi;         /* TEMPI_ABI_* */
    void *handle;        /* of dlopen */
    uintptr_t base;      /* load address */
    int simulated;       /* 1: SimGrid, whose ranks are threads of this one process */
    char path[PATH_MAX]; /* empty: the program itself (a static MPI) */
};

/* Returns 0 if no loaded object except tempi defines PMPI_Init. */
int tempi_find_mpi(struct tempi_found *out);

/* The library's own function or datum of exactly that name. */
void *tempi_find_symbol(const struct tempi_found *mpi, const char *name);
/* The next `name` after tempi in the program's symbol look-up order (a profiling tool's, or the
 * library's); the library's own if it was loaded outside the global scope. */
void *tempi_find_next(const struct tempi_found *mpi, const char *name);
/* A datum as the program sees it: with copy relocations, the library's own copy is wrong. */
void *tempi_find_datum(const struct tempi_found *mpi, const char *name);

/* libtempi.so itself: its path, and its own definition of a name. */
int tempi_find_self(char path[PATH_MAX]);
void *tempi_find_own(const char *name);

#endif
