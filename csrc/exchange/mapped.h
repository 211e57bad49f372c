/* Host memory of one process that the other processes of its node can map: they read its bytes
 * where they lie.
 *
 *   file   | bytes for the program | a page: the memory's mark, and whether it was freed |
 *
 * The file has no name. Its owner tells others the number of its descriptor; they open that through
 * /proc, compare the mark, and keep the mapping for later exchanges until the memory is freed. */
#ifndef TEMPI_EXCHANGE_MAPPED_H
#define TEMPI_EXCHANGE_MAPPED_H

#include <stdbool.h>
#include <stdint.h>

enum { TEMPI_MAPPED_LEAST = 64 << 10 /* bytes: each memory takes a file descriptor */ };

/* How others find it. By value: it is passed through shared memory. All zero: nothing. */
typedef struct tempi_mapped {
    uint64_t first; /* its address in the owner */
    int64_t bytes;
    uint64_t mark; /* which no other one has; never 0 */
    int32_t process;
    int32_t file; /* the owner's descriptor */
} tempi_mapped;

/* Memory aligned to a page, not zeroed; NULL: the system has none, or no descriptor to spare. */
void *tempi_mapped_allocate(int64_t bytes);
/* False: it does not come from there, and nothing was done. Its pages are given back at once, also
 * if others still map them; after a fork when both processes have freed it. */
bool tempi_mapped_free(void *memory);
/* The same, but it may be kept for the next allocation: new pages take long. */
bool tempi_mapped_put(void *memory);
/* Whether bytes [from, to) lie in one of them. */
bool tempi_mapped_find(uint64_t from, uint64_t to, tempi_mapped *out);

/* Its first byte in this process, read-only, valid until the matching close of *pin. NULL: it
 * cannot be mapped. */
const char *tempi_mapped_open(const tempi_mapped *memory, int *pin);
void tempi_mapped_close(int pin);
/* Drops all mappings of other processes' memory, and what was kept. */
void tempi_mapped_clear(void);

#endif
