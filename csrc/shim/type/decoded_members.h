/* What was decoded of one datatype already: members of structs, each once, however many parents it
 * has. */
#ifndef TEMPI_SHIM_MEMO_H
#define TEMPI_SHIM_MEMO_H

#include "shim/type/traits.h"

typedef struct tempi_memo_entry {
    uint64_t identity;
    tempi_layout *layout; /* the memo's */
    int64_t extent;
    tempi_traits traits;
} tempi_memo_entry;

/* All zero: empty. Entries keep their numbers, not their addresses. */
typedef struct tempi_memo {
    tempi_memo_entry *entries;
    int64_t n, room;
    int64_t *slots; /* a hash table of entry numbers + 1 */
    int bits;
} tempi_memo;

/* The entry's number, or -1. */
int64_t tempi_memo_find(const tempi_memo *memo, uint64_t identity);
/* Takes the layout over, unless it fails: -1, out of memory. */
int64_t tempi_memo_add(tempi_memo *memo, uint64_t identity, tempi_layout *layout,
                       const tempi_traits *traits);
void tempi_memo_clear(tempi_memo *memo);

/* The same number for the same type, as long as a type that contains it lives. `predefined`: as its
 * combiner says. */
uint64_t tempi_type_identity(MPI_Datatype type, bool predefined);

#endif
