#include "shim/type/decoded_members.h"
#include "base/hash.h"

#include <malloc.h> /* malloc_usable_size */
#include <stdlib.h>
#include <string.h>

/* ---- the table ------------------------------------------------------------------------------- */

static uint64_t home(const tempi_memo *memo, uint64_t identity)
{
    return tempi_hash_home(identity, memo->bits);
}

static int64_t *slot_of(const tempi_memo *memo, uint64_t identity)
{
    const uint64_t mask = ((uint64_t)1 << memo->bits) - 1;
    for (uint64_t at = home(memo, identity);; at = (at + 1) & mask)
        if (memo->slots[at] == 0 || memo->entries[memo->slots[at] - 1].identity == identity)
            return &memo->slots[at];
}

int64_t tempi_memo_find(const tempi_memo *memo, uint64_t identity)
{
    return memo->n > 0 ? *slot_of(memo, identity) - 1 : -1;
}

/* Doubles the capacity; at most half the slots are used. */
static bool grow(tempi_memo *memo)
{
    const unsigned bits = memo->bits ? memo->bits + 1 : 4;
    const int64_t capacity = (int64_t)1 << (bits - 1);
    tempi_memo_entry *entries = realloc(memo->entries, (size_t)capacity * sizeof *entries);
    if (entries)
        memo->entries = entries;
    int64_t *slots = entries ? calloc((size_t)2 * (size_t)capacity, sizeof *slots) : NULL;
    if (!slots)
        return false;
    free(memo->slots);
    memo->slots = slots;
    memo->bits = bits;
    memo->capacity = capacity;
    for (int64_t i = 0; i < memo->n; ++i)
        *slot_of(memo, entries[i].identity) = i + 1;
    return true;
}

int64_t tempi_memo_add(tempi_memo *memo, uint64_t identity, tempi_layout *layout,
                       const tempi_traits *traits)
{
    if (memo->n == memo->capacity && !grow(memo))
        return -1;
    memo->entries[memo->n] = (tempi_memo_entry){identity, layout, layout->extent, *traits};
    *slot_of(memo, identity) = ++memo->n;
    return memo->n - 1;
}

void tempi_memo_clear(tempi_memo *memo)
{
    for (int64_t i = 0; i < memo->n; ++i)
        tempi_layout_free(memo->entries[i].layout);
    free(memo->entries);
    free(memo->slots);
    *memo = (tempi_memo){.n = 0};
}

/* ---- identity of a type ---------------------------------------------------------------------- */

/* Identity of a type. MPICH returns one handle for one type each time. Open MPI returns a new
 * copy of a derived type each time the contents of a type that contains it are read. The copies
 * share one reference-counted object that lives as long as any of them. The standard has no
 * function that compares types, so the offset of the pointer to that object is found by
 * experiment: the one word that is equal in a type and its copies, and differs in a type made in
 * the same way. If neither holds, every copy counts as another type, which is correct and slow. */
enum { UNTRIED = -3, BY_HANDLE = -2, NOWHERE = -1 }; /* else the number of the word */

#ifdef OMPI_MAJOR_VERSION

enum { WORDS = 64 };

static uint64_t word_of(MPI_Datatype type, int at)
{
    uint64_t word;
    memcpy(&word, (const char *)type + (size_t)at * sizeof word, sizeof word);
    return word;
}

static int words_in(MPI_Datatype type)
{
    const size_t n = malloc_usable_size((void *)type) / sizeof(uint64_t);
    return n < WORDS ? (int)n : WORDS;
}

/* The only word that distinguishes a, which has two copies, from b. */
static int word_between(MPI_Datatype a, MPI_Datatype b, const MPI_Datatype copies[3])
{
    const MPI_Datatype all[] = {a, b, copies[0], copies[1], copies[2]};
    int found = NOWHERE, n = WORDS;
    for (int i = 0; i < 5; ++i)
        n = words_in(all[i]) < n ? words_in(all[i]) : n;
    for (int at = 0; at < n; ++at) {
        const uint64_t of_a = word_of(a, at), of_b = word_of(b, at);
        if (of_a == of_b || !of_a || !of_b || word_of(copies[0], at) != of_a ||
            word_of(copies[1], at) != of_a || word_of(copies[2], at) != of_b)
            continue;
        if (found != NOWHERE)
            return NOWHERE;
        found = at;
    }
    return found;
}

static uint64_t in_word(MPI_Datatype type, int at)
{
    return word_of(type, at);
}

#else

static int word_between(MPI_Datatype a, MPI_Datatype b, const MPI_Datatype copies[3])
{
    (void)a;
    (void)b;
    (void)copies;
    return NOWHERE;
}

static uint64_t in_word(MPI_Datatype type, int at)
{
    (void)at;
    return tempi_handle(type);
}

#endif

/* Finds the way by the contents of a struct of a, a and b. */
static int way_between(MPI_Datatype a, MPI_Datatype b)
{
    MPI_Datatype types[] = {a, a, b}, all;
    int lengths[] = {1, 1, 1}, way = NOWHERE;
    MPI_Aint places[] = {0, 64, 128};
    tempi_contents c;
    if (tempi_lib.Type_create_struct(3, lengths, places, types, &all) != MPI_SUCCESS)
        return NOWHERE;
    if (tempi_contents_read(all, &c) == TEMPI_OK) {
        if (c.types[0] == a && c.types[1] == a && c.types[2] == b)
            way = BY_HANDLE;
        else if (c.types[0] != a && c.types[0] != c.types[1] && c.types[1] != a && c.types[2] != b)
            way = word_between(a, b, c.types);
        tempi_contents_release(&c);
    }
    tempi_lib.Type_free(&all);
    return way;
}

static int find_way(void)
{
    MPI_Datatype a, b;
    int way = NOWHERE;
    if (tempi_lib.Type_contiguous(2, MPI_INT, &a) != MPI_SUCCESS)
        return NOWHERE;
    if (tempi_lib.Type_contiguous(2, MPI_INT, &b) == MPI_SUCCESS) {
        way = way_between(a, b);
        tempi_lib.Type_free(&b);
    }
    tempi_lib.Type_free(&a);
    return way;
}

uint64_t tempi_type_identity(MPI_Datatype type, bool predefined)
{
    static int way = UNTRIED;
    static uint64_t strangers;
    if (predefined)
        return tempi_handle(type);
    int known = __atomic_load_n(&way, __ATOMIC_RELAXED);
    if (known == UNTRIED)
        __atomic_store_n(&way, known = find_way(), __ATOMIC_RELAXED);
    if (known == BY_HANDLE)
        return tempi_handle(type);
    const uint64_t word = known == NOWHERE ? 0 : in_word(type, known);
    /* Types without the word must differ, so none gets 0. */
    return word ? word : ~__atomic_add_fetch(&strangers, 1, __ATOMIC_RELAXED);
}
