/* fragment.c: cuts a fragment, the bytes [lo, hi) of a nest's packed span, out of the nest.
 *
 * The packed spans nest, so at each level the wanted bytes are: possibly a part of one index, a
 * range of whole indices, possibly a part of one more index. The whole ones are copied as a nest
 * with a smaller count, at full speed; the parts are cut again one level further in. There are at
 * most two parts per level, so a fragment of any size costs O(levels) nests (and a binary search in
 * a table). */
#include "pack/nest.h"

#include <stddef.h>

/* The levels of a nest, outermost first: its dims, with the table (if any) at index `depth`. */
typedef struct fragment_state {
    const tempi_nest *whole;
    int nlevels;
    int64_t span[TEMPI_MAX_DIMS + 3]; /* packed span of level i and all inside it; last: the run */
} fragment_state;

static int level_is_table(const tempi_nest *nest, int level)
{
    return nest->entries && level == nest->depth;
}

/* Index in dims of a level that is not the table. */
static int level_dim(const tempi_nest *nest, int level)
{
    return nest->entries && level > nest->depth ? level - 1 : level;
}

static int64_t entry_position(const tempi_nest *nest, int64_t j)
{
    return nest->entries[j].packed - nest->bias;
}

/* Packed bytes of entry j, given the span of what is inside the table. */
static int64_t entry_span(const tempi_nest *nest, int64_t j, int64_t inside)
{
    return nest->run ? inside : nest->entries[j + 1].packed - nest->entries[j].packed;
}

static void fragment_init(fragment_state *state, const tempi_nest *nest)
{
    state->whole = nest;
    state->nlevels = nest->ndims + (nest->entries ? 1 : 0);
    int64_t span = nest->run;
    state->span[state->nlevels] = span;
    for (int level = state->nlevels - 1; level >= 0; level--) {
        if (level_is_table(nest, level)) {
            const int64_t last = nest->nentries - 1;
            span = entry_position(nest, last) + entry_span(nest, last, span);
        } else {
            const tempi_dim *dim = &nest->dims[level_dim(nest, level)];
            span += (dim->count - 1) * dim->packed_stride;
        }
        state->span[level] = span;
    }
}

/* The nest of all levels from `level` on, at the given memory and packed offsets. */
static void fragment_tail(const fragment_state *state, int level, int64_t mem, int64_t packed,
                          tempi_nest *out)
{
    const tempi_nest *whole = state->whole;
    out->mem = whole->mem + mem;
    out->run = whole->run;
    out->direction = whole->direction;
    out->nontemporal = whole->nontemporal;
    out->whole = whole->whole;
    const int has_table = whole->entries && level <= whole->depth;
    out->entries = has_table ? whole->entries : NULL;
    out->nentries = has_table ? whole->nentries : 0;
    out->bias = has_table ? whole->bias : 0;
    out->packed = whole->packed + packed;
    out->depth = has_table ? whole->depth - level : 0;
    const int first = level_dim(whole, level);
    out->ndims = whole->ndims - first;
    for (int d = 0; d < out->ndims; d++)
        out->dims[d] = whole->dims[first + d];
}

static void fragment_level(const fragment_state *state, int level, int64_t mem, int64_t packed,
                           int64_t lo, int64_t hi);

/* Copies entry j with everything inside it, cut to [lo, hi) relative to the entry. */
static void fragment_entry(const fragment_state *state, int level, int64_t j, int64_t mem,
                           int64_t packed, int64_t lo, int64_t hi)
{
    const tempi_nest *whole = state->whole;
    const int64_t at = packed + entry_position(whole, j);
    if (whole->run) {
        fragment_level(state, level + 1, mem + whole->entries[j].offset, at, lo, hi);
        return;
    }
    const int64_t span = entry_span(whole, j, 0);
    const int64_t from = lo > 0 ? lo : 0;
    const int64_t to = hi < span ? hi : span;
    if (to <= from)
        return;
    const tempi_nest piece = {.mem = whole->mem + mem + whole->entries[j].offset + from,
                              .packed = whole->packed + at + from,
                              .run = to - from,
                              .direction = whole->direction,
                              .nontemporal = whole->nontemporal,
                              .whole = whole->whole};
    tempi_nest_copy(&piece);
}

/* The last entry at or before packed position `at` (>= 0) of the table. */
static int64_t entry_find(const tempi_nest *nest, int64_t at)
{
    int64_t low = 0;
    int64_t high = nest->nentries;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (entry_position(nest, middle) <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void fragment_table(const fragment_state *state, int level, int64_t mem, int64_t packed,
                           int64_t lo, int64_t hi)
{
    const tempi_nest *whole = state->whole;
    const int64_t inside = state->span[level + 1];
    int64_t first = lo > 0 ? entry_find(whole, lo) : 0;
    const int64_t start = entry_position(whole, first);
    if (lo > start) {
        fragment_entry(state, level, first, mem, packed, lo - start, hi - start);
        first++;
    }
    int64_t end = entry_find(whole, hi);
    if (hi >= entry_position(whole, end) + entry_span(whole, end, inside))
        end++;
    if (first < end) {
        tempi_nest full;
        fragment_tail(state, level, mem, packed, &full);
        full.entries += first;
        full.nentries = end - first;
        tempi_nest_copy(&full);
    }
    const int64_t last = end > first ? end : first;
    if (last < whole->nentries && hi > entry_position(whole, last)) {
        const int64_t at = entry_position(whole, last);
        fragment_entry(state, level, last, mem, packed, lo - at, hi - at);
    }
}

static void fragment_dim(const fragment_state *state, int level, int64_t mem, int64_t packed,
                         int64_t lo, int64_t hi)
{
    const tempi_dim *dim = &state->whole->dims[level_dim(state->whole, level)];
    const int64_t step = dim->packed_stride;
    const int64_t inside = state->span[level + 1];
    int64_t first = lo > 0 ? lo / step : 0;
    const int64_t start = first * step;
    if (lo > start) {
        fragment_level(state, level + 1, mem + first * dim->stride, packed + start, lo - start,
                       hi - start);
        first++;
    }
    int64_t end = hi >= inside ? (hi - inside) / step + 1 : 0;
    if (end > dim->count)
        end = dim->count;
    if (first < end) {
        tempi_nest full;
        fragment_tail(state, level, mem + first * dim->stride, packed + first * step, &full);
        full.dims[0].count = end - first;
        tempi_nest_copy(&full);
    }
    const int64_t last = end > first ? end : first;
    if (last < dim->count && hi > last * step)
        fragment_level(state, level + 1, mem + last * dim->stride, packed + last * step,
                       lo - last * step, hi - last * step);
}

/* Copies the bytes [lo, hi) of the span of `level`, whose first byte is at the given offsets. */
static void fragment_level(const fragment_state *state, int level, int64_t mem, int64_t packed,
                           int64_t lo, int64_t hi)
{
    const int64_t span = state->span[level];
    if (lo < 0)
        lo = 0;
    if (hi > span)
        hi = span;
    if (lo >= hi)
        return;
    if (level == state->nlevels || (lo == 0 && hi == span)) {
        tempi_nest rest;
        fragment_tail(state, level, mem, packed, &rest);
        if (level == state->nlevels) {
            rest.mem += lo;
            rest.packed += lo;
            rest.run = hi - lo;
        }
        tempi_nest_copy(&rest);
    } else if (level_is_table(state->whole, level)) {
        fragment_table(state, level, mem, packed, lo, hi);
    } else {
        fragment_dim(state, level, mem, packed, lo, hi);
    }
}

void tempi_nest_copy_range(tempi_nest *nest, int64_t lo, int64_t hi)
{
    fragment_state state;
    fragment_init(&state, nest);
    fragment_level(&state, 0, 0, 0, lo, hi);
}
