/* The decoded struct members of one datatype: each member type is decoded once, however many
 * parents it has. */
#ifndef TEMPI_SHIM_DECODED_MEMBERS_H
#define TEMPI_SHIM_DECODED_MEMBERS_H

#include "shim/type/traits.h"

typedef struct tempi_memo_entry {
    uint64_t identity;
    tempi_layout *layout; /* owned by the memo */
    int64_t extent;
    tempi_traits traits;
} tempi_memo_entry;

/* All zero: empty. Entries may move in memory but keep their numbers. */
typedef struct tempi_memo {
    tempi_memo_entry *entries;
    int64_t n, capacity;
    int64_t *slots; /* a hash table of entry numbers + 1 */
    unsigned bits;
} tempi_memo;

/* The entry's number, or -1. */
int64_t tempi_memo_find(const tempi_memo *memo, uint64_t identity);
/* Takes over the layout and returns its number; -1: out of memory, and the caller keeps it. */
int64_t tempi_memo_add(tempi_memo *memo, uint64_t identity, tempi_layout *layout,
                       const tempi_traits *traits);
void tempi_memo_clear(tempi_memo *memo);

/* A number that is the same for copies of one type while a type that contains it lives.
 * `predefined`: by its combiner. */
uint64_t tempi_type_identity(MPI_Datatype type, bool predefined);

#endif
