/* datatype/passes.h: the passes over all boxes of a builder. Each is a function of the boxes alone
 * (never of their history), reports whether it changed anything, and preserves the bytes and their
 * order. */
#ifndef TEMPI_DATATYPE_PASSES_H
#define TEMPI_DATATYPE_PASSES_H
#include "datatype/layout_builder.h"

enum { TEMPI_PERIOD_MAX = 16 }; /* longest repeating pattern of boxes or runs that is searched */

typedef struct tempi_pass {
    const char *name;
    int (*run)(tempi_builder *builder, bool *changed);
} tempi_pass;

int tempi_pass_elide(tempi_builder *builder, bool *changed);
int tempi_pass_fold(tempi_builder *builder, bool *changed);
int tempi_pass_flatten(tempi_builder *builder, bool *changed);
int tempi_pass_merge(tempi_builder *builder, bool *changed);
int tempi_pass_join(tempi_builder *builder, bool *changed);
int tempi_pass_table(tempi_builder *builder, bool *changed);
int tempi_pass_derive(tempi_builder *builder, bool *changed);

/* Inserts the dimension in the order of packed strides, if the packed spans still nest. */
bool tempi_box_nest_dim(tempi_box *box, tempi_dim dim);

/* Finds the n entries as a perfect nest of dimensions, innermost first; returns their number, or -1
 * if there is no nest or it takes more than `most`. */
int tempi_nest_find(const tempi_entry *entries, int64_t n, tempi_dim *dims, int most);

/* The best boxes for a gapless sequence of n maximal runs (entries[n] closes it). They take the
 * dims, offset and position of `around`. *found: false if nothing is better than a table. */
int tempi_runs_resolve(const tempi_entry *entries, int64_t n, const tempi_box *around,
                       tempi_builder *out, bool *found);
/* The best boxes for such a sequence, a table included (derive.c). */
int tempi_runs_boxes(const tempi_entry *entries, int64_t n, const tempi_box *around,
                     tempi_builder *out);
/* The same as one table, of equal or of variable runs. */
int tempi_runs_table(const tempi_entry *entries, int64_t n, const tempi_box *around,
                     tempi_builder *out);

#endif
