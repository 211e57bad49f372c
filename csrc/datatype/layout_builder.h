/* datatype/layout_builder.h: boxes under construction. Functions return a tempi_status; after a
 * failure the draft is still whole and tempi_builder_clear frees it. */
#ifndef TEMPI_DATATYPE_DRAFT_H
#define TEMPI_DATATYPE_DRAFT_H
#include "datatype/layout.h"

enum { TEMPI_BUILDER_OWN = 4 }; /* boxes that need no allocation: most types have one or two */

typedef struct tempi_builder {
    int64_t size;
    int64_t lb, ub;
    int64_t low, high; /* all that bounds and bytes reach; high - low fits in 63 bits */
    bool bounded;      /* these four hold something */
    int64_t nboxes, room;
    tempi_box *boxes;
    tempi_box own[TEMPI_BUILDER_OWN];
} tempi_builder;

/* One contiguous run of a type map, in packed order. */
typedef struct tempi_run {
    int64_t packed, offset, bytes;
} tempi_run;

void tempi_builder_init(tempi_builder *draft);
void tempi_builder_clear(tempi_builder *draft);
/* Drops the boxes only. */
void tempi_builder_empty(tempi_builder *draft);
/* Exchanges the boxes, not size and bounds. */
void tempi_builder_swap_boxes(tempi_builder *a, tempi_builder *b);
/* Room for `more` further boxes. */
int tempi_builder_reserve(tempi_builder *draft, int64_t more);
/* Appends a copy of the box; the draft takes its own reference to the table. */
int tempi_builder_append(tempi_builder *draft, const tempi_box *box);
/* Every box from `first` on gains an outermost dimension. */
int tempi_builder_repeat(tempi_builder *draft, int64_t first, int64_t count, int64_t stride,
                         int64_t packed_stride);
/* blocklength elements of `inner`, the first at memory `offset`, packed at draft->size. Adds their
 * bytes to the size and their bounds to the bounds. */
int tempi_builder_block(tempi_builder *draft, const tempi_layout *inner, int64_t blocklength,
                        int64_t offset);
/* Only the size, only the bounds of such a block. */
int tempi_builder_grow(tempi_builder *draft, const tempi_layout *inner, int64_t blocklength);
int tempi_builder_bound(tempi_builder *draft, const tempi_layout *inner, int64_t blocklength,
                        int64_t offset);
/* Appends a box with this table (whose reference passes to the draft, also on failure). */
int tempi_builder_table(tempi_builder *draft, tempi_box box, tempi_shared_table *table);
/* Appends n > 0 runs, adjacent in the packed stream, as boxes when few, else as one table. */
int tempi_builder_runs(tempi_builder *draft, const tempi_run *runs, int64_t n);
/* The draft as a layout for tracing and copying; points into the draft. */
int tempi_builder_view(const tempi_builder *draft, tempi_layout *view);
/* A new object that takes the boxes over (the draft is then empty). */
int tempi_builder_finish(tempi_builder *draft, tempi_layout_object **out);
/* Ends a constructor with this status: the draft becomes a layout, or is thrown away. */
int tempi_builder_layout(int status, tempi_builder *draft, tempi_layout **out);

/* All runs of the boxes in packed order, unmerged: `runs` has room for the sum of tempi_box_runs.
 * `scratch` has as much; the result lies in one of the two and is returned. */
tempi_run *tempi_runs_collect(const tempi_box *boxes, int64_t nboxes, tempi_run *runs,
                              tempi_run *scratch, int64_t *n);
/* Joins runs that continue one another in memory and in the packed stream; returns how many are
 * left. */
int64_t tempi_runs_merge(tempi_run *runs, int64_t n);

#endif
