/* datatype/layout.h: layouts inside the engine.
 *
 * raw        returned by a constructor: boxes composed, nothing simplified; owned by the caller
 * canonical  returned by tempi_layout_canonical: interned and counted
 * builder    boxes under construction (layout_builder.h); only constructors and passes use it
 *
 * Guarantee of the canonical form: equal bytes in equal order give the same pointer (the bounds lb
 * and extent are part of a type's identity). It holds, however the types were built, when
 *  1. the bytes are a perfect nest (one box without a table: every vector, subarray face,
 *     transpose, array of structs with one field ...) and the passes arrive at one box: the folded
 *     nest of a byte sequence is unique (proof at tempi_nest_find in regular.c); or
 *  2. the type has at most TEMPI_DERIVE_RUNS maximal runs and the passes' boxes list at most
 *     TEMPI_DERIVE_LISTED: such types are derived again from their run sequence alone; or
 *  3. the type is one irregular sequence of runs (one table, no dimension over or under it).
 * Larger types that mix tables, dimensions and several boxes are canonical as far as the passes
 * reach: the same construction always gives the same pointer, two different ones usually do. */
#ifndef TEMPI_DATATYPE_LAYOUT_H
#define TEMPI_DATATYPE_LAYOUT_H
#include "tempi.h"
#include <stdatomic.h>
#include <stdbool.h>

enum {
    TEMPI_DERIVE_RUNS = 256,    /* types up to this many maximal runs are derived from them */
    TEMPI_DERIVE_LISTED = 4096, /* ... if the boxes list at most this many before merging */
    TEMPI_FEW_RUNS = 4 /* up to this many loose runs in a row stay boxes, more make a table */
};

/* A table shared by several boxes. entries[0] is always (0, 0): the boxes hold the start.
 * entries[n] closes it; of a table of equal runs without gaps as of one of variable runs. */
typedef struct tempi_shared_table {
    tempi_table pub; /* first: a box's `table` points here */
    _Atomic int64_t refs;
    int64_t lo;           /* smallest entry offset */
    int64_t hi;           /* largest entry offset; with variable runs the largest end of a run */
    _Atomic bool settled; /* already final: the passes need not process it again */
    tempi_entry entries[];
} tempi_shared_table;

typedef struct tempi_layout_object {
    tempi_layout pub;     /* first: the public pointer is the object's */
    _Atomic int64_t refs; /* of an interned layout; 0: raw */
    uint64_t hash;
    struct tempi_layout_object *next; /* next in its bucket of the interning table */
    /* pub.cache: the packer's cached plans, by direction, for one element; from malloc. */
    _Atomic(void *) plans[2];
    tempi_box boxes[];
} tempi_layout_object;

static inline tempi_layout_object *tempi_layout_object_of(const tempi_layout *layout)
{
    return (tempi_layout_object *)(void *)(uintptr_t)layout;
}

/* The same boxes and bounds. */
bool tempi_layout_equal(const tempi_layout *a, const tempi_layout *b);
/* Adds a reference to a canonical layout; returns it. */
const tempi_layout *tempi_layout_retain(const tempi_layout *layout);

/* ---- overflow: true when the result does not fit in 63 bits ---------------------------------- */
static inline bool tempi_add64(int64_t a, int64_t b, int64_t *sum)
{
    return __builtin_add_overflow(a, b, sum);
}
static inline bool tempi_mul64(int64_t a, int64_t b, int64_t *product)
{
    return __builtin_mul_overflow(a, b, product);
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* An uninitialised table for n entries and a closing one; NULL: out of memory. */
tempi_shared_table *tempi_table_new(int64_t n);
/* Shortens a table of variable runs to its first n entries and the closing one. */
tempi_shared_table *tempi_table_shrink(tempi_shared_table *table, int64_t n);
/* Shifts the entries so that the first is (0, 0), records the bounds, and returns the old first
 * entry. Without variable runs it writes the closing entry, too: one more step of the first. */
tempi_entry tempi_table_seal(tempi_shared_table *table, bool variable);
void tempi_table_retain(const tempi_table *table);
void tempi_table_release(const tempi_table *table);
bool tempi_table_equal(const tempi_table *a, const tempi_table *b, bool variable);
static inline const tempi_shared_table *tempi_table_shared(const tempi_table *table)
{
    return (const tempi_shared_table *)(const void *)table;
}
/* Sets and reads the mark that the passes cannot simplify the table's runs. */
void tempi_table_settle(const tempi_table *table);
static inline bool tempi_table_settled(const tempi_table *table)
{
    return atomic_load_explicit(&tempi_table_shared(table)->settled, memory_order_relaxed);
}

/* ---- boxes ----------------------------------------------------------------------------------- */

/* Number of the box's dims outside its table; ndims if it has none. The stride of a dim inside is
 * smaller than the gap between two entries; outside it is at least the table's whole span. */
static inline int tempi_box_level(const tempi_box *box)
{
    int level = box->ndims;
    if (!box->table)
        return level;
    while (level > 0 &&
           box->dims[level - 1].packed_stride <= box->table->entries[box->table->n - 1].packed)
        level--;
    return level;
}
/* Packed bytes from the box's first byte to past its last. */
int64_t tempi_box_span(const tempi_box *box);
int64_t tempi_box_runs(const tempi_box *box);
/* [lo, hi) in memory; false when it does not fit in 63 bits. */
bool tempi_box_bounds(const tempi_box *box, int64_t *lo, int64_t *hi);
/* Same run, dims, table and space: equal except for a shift in memory and in the packed stream. */
bool tempi_box_same_shape(const tempi_box *a, const tempi_box *b);
void tempi_box_insert_dim(tempi_box *box, int at, tempi_dim dim);
void tempi_box_remove_dim(tempi_box *box, int at);

/* The passes of one box; each returns whether it changed anything. Rules: passes.c */
bool tempi_box_elide(tempi_box *box);
bool tempi_box_fold(tempi_box *box);
bool tempi_box_flatten(tempi_box *box);

#endif
