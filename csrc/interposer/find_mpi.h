/* find_mpi.h: the MPI library in this process. */
#ifndef TEMPI_INTERPOSER_FIND_H
#define TEMPI_INTERPOSER_FIND_H
#include <limits.h>
#include <stdint.h>

/* What was found; stays valid, since an MPI library cannot be unloaded. */
struct tempi_found {
    int32_t abi;         /* TEMPI_ABI_* */
    void *handle;        /* of dlopen */
    uintptr_t base;      /* load address */
    int simulated;       /* SimGrid's: the ranks are threads of this one process */
    char path[PATH_MAX]; /* empty: the program itself (a static MPI) */
};

/* 0 if no loaded object but tempi defines PMPI_Init. */
int tempi_find_mpi(struct tempi_found *out);

/* The library's own function or datum of just that name. */
void *tempi_find_symbol(const struct tempi_found *mpi, const char *name);
/* The next `name` after tempi in the program's own order of look-up (a profiling tool, or the
 * library itself); the library's if it was loaded out of the program's sight. */
void *tempi_find_next(const struct tempi_found *mpi, const char *name);
/* A datum as the program sees it: with copy relocations the library's own copy is the wrong one. */
void *tempi_find_datum(const struct tempi_found *mpi, const char *name);

/* libtempi.so itself: its path, and its own definition of a name. */
int tempi_find_self(char path[PATH_MAX]);
void *tempi_find_own(const char *name);

#endif
