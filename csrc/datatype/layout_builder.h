/* datatype/layout_builder.h: boxes under construction. Functions return a tempi_status; after a
 * failure the builder is still valid and tempi_builder_clear frees it. */
#ifndef TEMPI_DATATYPE_LAYOUT_BUILDER_H
#define TEMPI_DATATYPE_LAYOUT_BUILDER_H
#include "datatype/layout.h"

enum { TEMPI_BUILDER_OWN = 4 }; /* boxes without allocation: most types have one or two */

typedef struct tempi_builder {
    int64_t size;
    int64_t lb, ub;
    int64_t low, high; /* the range of all bounds and bytes; high - low fits in 63 bits */
    bool bounded;      /* the four above are set */
    int64_t nboxes, capacity;
    tempi_box *boxes;
    tempi_box own[TEMPI_BUILDER_OWN];
} tempi_builder;

/* One contiguous run of a type map, in packed order. */
typedef struct tempi_run {
    int64_t packed, offset, bytes;
} tempi_run;

void tempi_builder_init(tempi_builder *builder);
void tempi_builder_clear(tempi_builder *builder);
/* Drops the boxes only. */
void tempi_builder_empty(tempi_builder *builder);
/* Exchanges the boxes, not size and bounds. */
void tempi_builder_swap_boxes(tempi_builder *a, tempi_builder *b);
/* Reserves memory for `more` further boxes. */
int tempi_builder_reserve(tempi_builder *builder, int64_t more);
/* Appends a copy of the box; the builder takes its own reference to the table. */
int tempi_builder_append(tempi_builder *builder, const tempi_box *box);
/* Adds an outermost dimension to every box from `first` on. */
int tempi_builder_repeat(tempi_builder *builder, int64_t first, int64_t count, int64_t stride,
                         int64_t packed_stride);
/* Appends blocklength elements of `inner`, the first at memory `offset`, packed at builder->size.
 * Adds their bytes to the size and their bounds to the bounds. */
int tempi_builder_block(tempi_builder *builder, const tempi_layout *inner, int64_t blocklength,
                        int64_t offset);
/* Add only the size, or only the bounds, of such a block. */
int tempi_builder_grow(tempi_builder *builder, const tempi_layout *inner, int64_t blocklength);
int tempi_builder_bound(tempi_builder *builder, const tempi_layout *inner, int64_t blocklength,
                        int64_t offset);
/* Appends a box with this table. The reference passes to the builder, also on failure. */
int tempi_builder_table(tempi_builder *builder, tempi_box box, tempi_shared_table *table);
/* Appends n > 0 runs, adjacent in the packed stream: as boxes if few, else as one table. */
int tempi_builder_runs(tempi_builder *builder, const tempi_run *runs, int64_t n);
/* Makes a layout for tracing and copying that points into the builder. */
int tempi_builder_view(const tempi_builder *builder, tempi_layout *view);
/* Makes an object that takes the boxes over (the builder is then empty). */
int tempi_builder_finish(tempi_builder *builder, tempi_layout_object **out);
/* Ends a constructor with this status: turns the builder into a layout, or discards it. */
int tempi_builder_layout(int status, tempi_builder *builder, tempi_layout **out);

/* All runs of the boxes in packed order, unmerged. `runs` and `scratch` each have space for the sum
 * of tempi_box_runs; the result lies in one of the two and is returned. */
tempi_run *tempi_runs_collect(const tempi_box *boxes, int64_t nboxes, tempi_run *runs,
                              tempi_run *scratch, int64_t *n);
/* Merges runs that continue one another in memory and in the packed stream; returns their number.
 */
int64_t tempi_runs_merge(tempi_run *runs, int64_t n);

#endif
