#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

int tempi_log_level = TEMPI_LOG_WARN;

void tempi_log_write(int level, const char *format, ...)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    char line[1024];
    const int saved = errno;
    int used = snprintf(line, sizeof line, "tempi[%d] %s: ", (int)getpid(), names[level & 3]);
    va_list args;
    va_start(args, format);
    const int more = vsnprintf(line + used, sizeof line - (size_t)used - 1, format, args);
    va_end(args);
    used += more < 0 ? 0 : more;
    if (used > (int)sizeof line - 2)
        used = (int)sizeof line - 2;
    line[used++] = '\n';
    /* Ignore a closed or full stderr: the caller cannot do anything about it. */
    if (write(STDERR_FILENO, line, (size_t)used) < 0) {
    }
    errno = saved;
}
