/* datatype/passes.h: the passes of a whole draft. Each is a function of the boxes alone (never of
 * how they came about), tells whether it changed anything, and keeps the bytes and their order. */
#ifndef TEMPI_DATATYPE_PASSES_H
#define TEMPI_DATATYPE_PASSES_H
#include "datatype/layout_builder.h"

enum { TEMPI_PERIOD_MAX = 16 }; /* longest repeating pattern of boxes or runs that is looked for */

typedef struct tempi_pass {
    const char *name;
    int (*run)(tempi_builder *draft, bool *changed);
} tempi_pass;

int tempi_pass_elide(tempi_builder *draft, bool *changed);
int tempi_pass_fold(tempi_builder *draft, bool *changed);
int tempi_pass_flatten(tempi_builder *draft, bool *changed);
int tempi_pass_merge(tempi_builder *draft, bool *changed);
int tempi_pass_join(tempi_builder *draft, bool *changed);
int tempi_pass_table(tempi_builder *draft, bool *changed);
int tempi_pass_derive(tempi_builder *draft, bool *changed);

/* Adds the dimension where its packed stride belongs, if the packed spans still nest. */
bool tempi_box_nest_dim(tempi_box *box, tempi_dim dim);

/* The n entries as a perfect nest of dimensions, innermost first; their number, or -1 if they are
 * none or it takes more than `most`. */
int tempi_nest_find(const tempi_entry *entries, int64_t n, tempi_dim *dims, int most);

/* The best boxes for a gapless sequence of n maximal runs (entries[n] closes it), which take the
 * dims, offset and position of `around`. *found: false if there is nothing better than a table. */
int tempi_runs_resolve(const tempi_entry *entries, int64_t n, const tempi_box *around,
                       tempi_builder *out, bool *found);
/* The best boxes for such a sequence, whatever it takes (derive.c). */
int tempi_runs_boxes(const tempi_entry *entries, int64_t n, const tempi_box *around,
                     tempi_builder *out);
/* The same as one table, of runs of one length or of variable ones. */
int tempi_runs_table(const tempi_entry *entries, int64_t n, const tempi_box *around,
                     tempi_builder *out);

#endif
