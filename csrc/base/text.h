/* Small text files, such as those under /proc. */
#ifndef TEMPI_BASE_TEXT_H
#define TEMPI_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Reads the first size - 1 bytes of the file and terminates them with a zero; false: it cannot be
 * opened. */
bool tempi_text_read(const char *path, char *out, size_t size);

#endif
