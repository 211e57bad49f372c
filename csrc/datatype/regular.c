/* datatype/regular.c: finds regularity in a table or in a sequence of runs.
 *
 * table    a box's table becomes dimensions if its entries are a perfect nest, and several boxes if
 *          the entries repeat a pattern; runs that continue one another are merged first; an
 *          irregular rest becomes the cheaper of a table of equal runs and one of variable runs.
 */
#include "datatype/passes.h"
#include <stdlib.h>
#include <string.h>

/* Greedy from the inside: the step is the distance of the first two pieces, its count is the number
 * of pieces until that step is broken, and that many pieces are the next larger piece.
 *
 * Why the nest is unique: in a folded nest the first break of the innermost step comes exactly at
 * its count (else the next dimension would have been flattened into it), so run, innermost stride
 * and count are read off the bytes themselves; the same holds for every outer dimension. */
int tempi_nest_find(const tempi_entry *e, int64_t n, tempi_dim *dims, int most)
{
    int ndims = 0;
    for (int64_t piece = 1; piece < n;) {
        if (ndims == most)
            return -1;
        const int64_t stride = e[piece].offset - e[0].offset,
                      packed = e[piece].packed - e[0].packed;
        int64_t at = piece;
        while (at < n && e[at].offset - e[at - piece].offset == stride &&
               e[at].packed - e[at - piece].packed == packed)
            at++;
        const int64_t count = at / piece;
        if (count < 2 || at % piece)
            return -1;
        dims[ndims++] = (tempi_dim){count, stride, packed};
        piece = at;
    }
    return ndims;
}

/* A box at the first entry, with the dims found (innermost first) inside those of `around`. */
static tempi_box nest_box(const tempi_box *around, tempi_entry at, int64_t run,
                          const tempi_dim *dims, int ndims)
{
    tempi_box box = *around;
    box.table = NULL;
    box.offset += at.offset;
    box.packed += at.packed;
    box.run = run;
    while (ndims > 0)
        box.dims[box.ndims++] = dims[--ndims];
    return box;
}

static int64_t run_length(const tempi_entry *e, int64_t i)
{
    return e[i + 1].packed - e[i].packed;
}

/* Whether the first few runs already break the nest. Avoids cutting all runs of irregular types. */
static bool nest_refuted(const tempi_entry *e, int64_t n)
{
    enum { LOOK = 64 };
    const int64_t look = n < LOOK ? n : LOOK;
    tempi_entry cut[2 * LOOK];
    const int64_t run = run_length(e, 0);
    int64_t m = 0;
    for (int64_t i = 0; i < look; i++) {
        cut[m++] = e[i];
        if (run_length(e, i) == 2 * run)
            cut[m++] = (tempi_entry){e[i].offset + run, e[i].packed + run};
        else if (run_length(e, i) != run)
            return true;
    }
    for (int64_t piece = 1, at; piece < m; piece = at) {
        for (at = piece; at < m && cut[at].offset - cut[at - piece].offset ==
                                       cut[piece].offset - cut[0].offset;)
            at++;
        if (at < m && (at < 2 * piece || at % piece))
            return true;
    }
    return false;
}

/* Halves runs of twice the first one's length (where the last run of one row of a nest touches the
 * first of the next); NULL: other lengths occur, so no perfect nest, or out of memory. */
static tempi_entry *runs_cut(const tempi_entry *e, int64_t n, int64_t *pieces)
{
    const int64_t run = run_length(e, 0);
    int64_t total = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t length = run_length(e, i);
        if (length != run && length != 2 * run)
            return NULL;
        total += length / run;
    }
    tempi_entry *cut = malloc((size_t)total * sizeof *cut), *next = cut;
    for (int64_t i = 0; cut && i < n; i++)
        for (int64_t at = 0; at < run_length(e, i); at += run)
            *next++ = (tempi_entry){e[i].offset + at, e[i].packed + at};
    *pieces = total;
    return cut;
}

static int resolve_nest(const tempi_entry *e, int64_t n, const tempi_box *around,
                        tempi_builder *out, bool *found)
{
    tempi_dim dims[TEMPI_MAX_DIMS];
    int64_t pieces;
    if (nest_refuted(e, n))
        return TEMPI_OK;
    tempi_entry *cut = runs_cut(e, n, &pieces);
    if (!cut)
        return TEMPI_OK;
    const int ndims = tempi_nest_find(cut, pieces, dims, TEMPI_MAX_DIMS - 1 - around->ndims);
    free(cut);
    if (ndims < 0)
        return TEMPI_OK;
    *found = true;
    const tempi_box box = nest_box(around, e[0], run_length(e, 0), dims, ndims);
    return tempi_builder_append(out, &box);
}

/* The shortest pattern of p > 1 runs whose rigid copies are the whole sequence; 0: none. */
static int64_t runs_period(const tempi_entry *e, int64_t n)
{
    for (int64_t p = 2; p <= TEMPI_PERIOD_MAX && 2 * p <= n; p++) {
        if (n % p)
            continue;
        int64_t i = p;
        while (
            i < n && run_length(e, i) == run_length(e, i - p) &&
            (i % p == 0 || e[i].offset - e[i - 1].offset == e[i - p].offset - e[i - p - 1].offset))
            i++;
        if (i == n)
            return p;
    }
    return 0;
}

/* Appends one box per run of the pattern; all have the dims, or the table, of the copies'
 * positions. */
static int resolve_period(const tempi_entry *e, int64_t n, const tempi_box *around,
                          tempi_builder *out, bool *found)
{
    const int64_t p = runs_period(e, n);
    if (p == 0)
        return TEMPI_OK;
    const int64_t copies = n / p;
    tempi_dim dims[TEMPI_MAX_DIMS];
    tempi_shared_table *table = tempi_table_new(copies);
    if (!table)
        return TEMPI_ERR_MEMORY;
    for (int64_t i = 0; i < copies; i++)
        table->entries[i] = e[i * p];
    tempi_table_seal(table, false);
    const int ndims = tempi_nest_find(table->entries, copies, dims,
                                      TEMPI_MAX_DIMS - 1 - around->ndims);
    const int64_t as_boxes = p * (int64_t)sizeof(tempi_box) + copies * (int64_t)sizeof(tempi_entry);
    int status = TEMPI_OK;
    if (ndims >= 0 || as_boxes < n * (int64_t)sizeof(tempi_entry)) {
        *found = true;
        for (int64_t k = 0; k < p && !status; k++) {
            tempi_box box = nest_box(around, e[k], run_length(e, k), dims, ndims < 0 ? 0 : ndims);
            box.table = ndims < 0 ? &table->pub : NULL;
            status = tempi_builder_append(out, &box);
        }
    }
    tempi_table_release(&table->pub);
    return status;
}

int tempi_runs_resolve(const tempi_entry *e, int64_t n, const tempi_box *around, tempi_builder *out,
                       bool *found)
{
    *found = false;
    const int status = resolve_nest(e, n, around, out, found);
    return status || *found ? status : resolve_period(e, n, around, out, found);
}

/* The common length of all runs; 0: they differ. (Cutting runs into equal pieces would copy as fast
 * but take up to twice the memory.) */
static int64_t runs_unit(const tempi_entry *e, int64_t n)
{
    const int64_t unit = run_length(e, 0);
    for (int64_t i = 1; i < n; i++)
        if (run_length(e, i) != unit)
            return 0;
    return unit;
}

int tempi_runs_table(const tempi_entry *e, int64_t n, const tempi_box *around, tempi_builder *out)
{
    if (n <= TEMPI_FEW_RUNS) {
        int status = TEMPI_OK;
        for (int64_t i = 0; i < n && !status; i++) {
            const tempi_box box = nest_box(around, e[i], run_length(e, i), NULL, 0);
            status = tempi_builder_append(out, &box);
        }
        return status;
    }
    const int64_t unit = runs_unit(e, n);
    const bool variable = unit == 0;
    if (around->run == unit && around->table && e == around->table->entries) { /* final as it is */
        tempi_table_settle(around->table);
        return tempi_builder_append(out, around);
    }
    tempi_shared_table *table = tempi_table_new(n);
    if (!table)
        return TEMPI_ERR_MEMORY;
    memcpy(table->entries, e, (size_t)(variable ? n + 1 : n) * sizeof *e);
    const tempi_entry first = tempi_table_seal(table, variable);
    tempi_table_settle(&table->pub);
    return tempi_builder_table(out, nest_box(around, first, unit, NULL, 0), table);
}

/* The table's runs, merged, with a closing entry; NULL: out of memory. */
static tempi_entry *table_runs(const tempi_box *box, int64_t *n)
{
    const tempi_table *t = box->table;
    tempi_entry *merged = malloc((size_t)(t->n + 1) * sizeof *merged);
    if (!merged)
        return NULL;
    int64_t kept = 0;
    merged[0] = t->entries[0];
    for (int64_t i = 1; i < t->n; i++) {
        const tempi_entry e = t->entries[i], last = merged[kept];
        if (e.offset - last.offset != e.packed - last.packed) /* not a continuation of the run */
            merged[++kept] = e;
    }
    *n = kept + 1;
    merged[*n] = (tempi_entry){0, box->run ? t->entries[t->n - 1].packed + box->run
                                           : t->entries[t->n].packed};
    return merged;
}

/* Whether the packed stream of the box's table, taken alone, has no gaps. */
static bool table_gapless(const tempi_box *box)
{
    const tempi_table *t = box->table;
    if (box->run == 0)
        return true;
    for (int64_t i = 1; i < t->n; i++)
        if (t->entries[i].packed - t->entries[i - 1].packed != box->run)
            return false;
    return true;
}

/* Uses only the entries' positions: everything under them is unchanged. */
static int table_to_dims(const tempi_box *box, tempi_builder *out, bool *changed)
{
    tempi_dim dims[TEMPI_MAX_DIMS];
    const int level = tempi_box_level(box);
    const int found = tempi_nest_find(box->table->entries, box->table->n, dims,
                                      TEMPI_MAX_DIMS - 1 - box->ndims);
    if (found < 0)
        return tempi_builder_append(out, box);
    tempi_box nest = *box;
    nest.table = NULL;
    for (int d = 0; d < found; d++)
        tempi_box_insert_dim(&nest, level, dims[d]);
    *changed = true;
    return tempi_builder_append(out, &nest);
}

/* Whether in a table without gaps no run continues another, and its last entry closes it. */
static bool table_maximal(const tempi_box *box)
{
    const tempi_entry *e = box->table->entries;
    const int64_t n = box->table->n;
    if (box->run && run_length(e, n - 1) != box->run)
        return false;
    for (int64_t i = 1; i < n; i++)
        if (e[i].offset - e[i - 1].offset == e[i].packed - e[i - 1].packed)
            return false;
    return true;
}

static int table_to_boxes(const tempi_box *box, tempi_builder *out, bool *changed)
{
    const int64_t boxes = out->nboxes;
    if (box->run) { /* evenly spaced entries need no merging */
        const int regular = table_to_dims(box, out, changed);
        if (regular || !out->boxes[boxes].table)
            return regular;
        tempi_table_release(out->boxes[--out->nboxes].table);
    }
    int64_t n = box->table->n;
    tempi_entry *merged = NULL;
    const tempi_entry *runs = box->table->entries;
    const bool maximal = table_maximal(box);
    if (!maximal)
        runs = merged = table_runs(box, &n);
    if (!runs)
        return TEMPI_ERR_MEMORY;
    int status = tempi_runs_boxes(runs, n, box, out);
    free(merged);
    if (!status)
        *changed = *changed || out->nboxes != boxes + 1 ||
                   !tempi_box_same_shape(box, &out->boxes[boxes]);
    return status;
}

int tempi_pass_table(tempi_builder *builder, bool *changed)
{
    bool any = false;
    for (int64_t i = 0; i < builder->nboxes; i++)
        any = any || (builder->boxes[i].table && !tempi_table_settled(builder->boxes[i].table));
    if (!any)
        return TEMPI_OK;
    tempi_builder out;
    tempi_builder_init(&out);
    int status = TEMPI_OK;
    for (int64_t i = 0; i < builder->nboxes && !status; i++) {
        const tempi_box *box = &builder->boxes[i];
        if (!box->table || tempi_table_settled(box->table))
            status = tempi_builder_append(&out, box);
        else if (tempi_box_level(box) == box->ndims && table_gapless(box))
            status = table_to_boxes(box, &out, changed);
        else
            status = table_to_dims(box, &out, changed);
    }
    tempi_builder_swap_boxes(builder, &out);
    tempi_builder_clear(&out);
    return status;
}
