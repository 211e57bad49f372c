#include "base/text.h"

#include <fcntl.h>
#include <unistd.h>

bool tempi_text_read(const char *path, char *out, size_t size)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    const ssize_t n = read(file, out, size - 1);
    close(file);
    out[n > 0 ? n : 0] = '\0';
    return true;
}
