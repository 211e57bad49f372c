/* Tests whether the program has loaded a certain library. dlopen(RTLD_NOLOAD) costs 17 us each time
 * that the answer is no (measured: it searches the file system). The loader counts the objects that
 * it has added; while the count is unchanged, so is the answer: 11 ns. */
#ifndef TEMPI_BASE_LOADED_H
#define TEMPI_BASE_LOADED_H

#include <stdbool.h>

typedef struct tempi_watch {
    const char *name;        /* prefix of the file's name or of its soname */
    unsigned long long seen; /* the loader's count at the last negative answer; 0: never searched */
} tempi_watch;

/* Whether an object of that name is loaded, under whatever path and version it was opened; writes
 * its path to path[0..size) unless size is 0. */
bool tempi_watch_probe(tempi_watch *watch, char *path, int size);

#endif
