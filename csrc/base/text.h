/* Small files of text, as the kernel shows them under /proc. */
#ifndef TEMPI_BASE_TEXT_H
#define TEMPI_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* The first size - 1 bytes of the file, closed by a zero; false: it cannot be opened. */
bool tempi_text_read(const char *path, char *out, size_t size);

#endif
