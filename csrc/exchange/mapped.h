/* Host memory of one process that the other processes of its node can map (mapping.h): they read
 * its bytes where they lie.
 *
 *   file   | bytes for the program | a page: the memory's mark, and whether it was freed |
 *
 * The file has no name. Its owner tells others the number of its descriptor; they open that through
 * /proc, compare the mark, and keep the mapping for later exchanges until the memory is freed. */
#ifndef TEMPI_EXCHANGE_MAPPED_H
#define TEMPI_EXCHANGE_MAPPED_H

#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

enum {
    TEMPI_MAPPED_LEAST = 64 << 10, /* bytes: each memory takes a file descriptor */
    TEMPI_MAPPED_ATTACHED = -1     /* in place of a descriptor: any memory, by XPMEM (xpmem.h) */
};

/* How others find it. By value: it is passed through shared memory. All zero: nothing. */
typedef struct tempi_mapped {
    uint64_t first; /* its address in the owner */
    int64_t bytes;
    uint64_t mark; /* which no other one has, or XPMEM's segment; never 0 */
    int32_t process;
    int32_t file; /* the owner's descriptor */
} tempi_mapped;

/* The file's last page. */
typedef struct tempi_mapped_trailer {
    uint64_t mark;
    uint32_t freed;
} tempi_mapped_trailer;

static inline int64_t tempi_mapped_page(void)
{
    return sysconf(_SC_PAGESIZE);
}

/* Of memory that is mapped at that address. */
static inline tempi_mapped_trailer *tempi_mapped_trailer_of(void *memory, int64_t bytes)
{
    return (tempi_mapped_trailer *)(void *)((char *)memory + bytes);
}

/* Memory aligned to a page, not zeroed; NULL: the system has none, or no descriptor to spare. */
void *tempi_mapped_allocate(int64_t bytes);
/* False: it does not come from there, and nothing was done. Its pages are given back at once, also
 * if others still map them; after a fork when both processes have freed it. */
bool tempi_mapped_free(void *memory);
/* The same, but it may be kept for the next allocation: new pages take long. */
bool tempi_mapped_put(void *memory);
/* Whether bytes [from, to) lie in one of them. */
bool tempi_mapped_find(uint64_t from, uint64_t to, tempi_mapped *out);

/* Gives back what was kept. */
void tempi_mapped_clear(void);

#endif
