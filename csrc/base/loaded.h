/* Has the program loaded a certain library by now? Asking dlopen(RTLD_NOLOAD) costs 17 us each time
 * that the answer is no (measured: it searches the file system). The loader counts the objects that
 * it has added; while the count stands, so does the answer: 11 ns. */
#ifndef TEMPI_BASE_LOADED_H
#define TEMPI_BASE_LOADED_H

#include <stdbool.h>

typedef struct tempi_watch {
    const char *name;        /* how the file's name begins */
    unsigned long long seen; /* the loader's count when it was last not there; 0: never looked */
} tempi_watch;

/* Whether an object of that name is loaded; its path goes to path[0..size) unless size is 0. */
bool tempi_watch_look(tempi_watch *watch, char *path, int size);

#endif
