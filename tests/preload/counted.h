/* What tempi has counted, if it is in the process: reports are printed before MPI_Finalize, and
 * none without MPI_COMM_WORLD. To be included first. */
#ifndef COUNTED_H
#define COUNTED_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <string.h>

/* The counter of that name; -1 without tempi. */
static long counted(const char *which)
{
    const char *(*name)(int) = (const char *(*)(int))dlsym(RTLD_DEFAULT, "tempi_stats_name");
    unsigned long (*value)(int) = (unsigned long (*)(int))dlsym(RTLD_DEFAULT, "tempi_stats_value");
    for (int i = 0; name && value && name(i); i++)
        if (strcmp(name(i), which) == 0)
            return (long)value(i);
    return -1;
}

#endif
