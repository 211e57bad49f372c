/* fail.c: ends all ranks and reports the reason where it is not lost. */
#include "halo.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A launcher that kills the ranks may drop their stderr; a file of the launching machine
 * survives. */
static int errors_file(void)
{
    const char *path = getenv("_TEMPI_BENCH_ERRORS");
    return path ? open(path, O_WRONLY | O_APPEND) : -1;
}

void fail(const char *format, ...)
{
    const int file = errors_file();
    const int out = file < 0 ? STDERR_FILENO : file;
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    dprintf(out, "halo: %s\n", text); /* one write: other ranks may fail at the same time */
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}
