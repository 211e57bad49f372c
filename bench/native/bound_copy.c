/* bound_copy.c: the line-touch bound of a copy from one layout to another.
 *
 * One load for each cache line that the source touches and one store for each of the target's, each
 * side in its own order, in turns of TILE bytes, which the processor overlaps. As in bound.c no
 * byte reaches its position, and the lines of the target are left with garbage. */
#include "native.h"
#include "touch.h"

enum { TILE = 4096 };

/* Where one side is: at a run of a row, the innermost dimension of its box. */
typedef struct cursor {
    tempi_box box;
    int64_t index[TEMPI_MAX_DIMS]; /* of the row */
    touched_row row;
    int64_t length, next; /* runs of the row */
    int64_t done;         /* bytes before it */
} cursor;

static void row_begin(cursor *c, char *memory)
{
    const int n = c->box.ndims;
    c->length = n ? c->box.dims[n - 1].count : 1;
    c->row = row_of(memory, n ? c->box.dims[n - 1].stride : c->box.run, c->box.run);
    c->next = 0;
}

/* 0: that was the last one. */
static int row_next(cursor *c)
{
    char *memory = c->row.memory;
    for (int d = c->box.ndims - 2; d >= 0; d--) {
        const tempi_dim *dim = &c->box.dims[d];
        memory += dim->stride;
        if (++c->index[d] < dim->count) {
            row_begin(c, memory);
            return 1;
        }
        memory -= dim->count * dim->stride;
        c->index[d] = 0;
    }
    return 0;
}

/* Touches what is packed before `upto`. */
INLINE void reach(cursor *c, int64_t upto, int store)
{
    const int64_t run = c->box.run;
    while (c->done < upto) {
        const int64_t wanted = (upto - c->done + run - 1) / run, left = c->length - c->next;
        const int64_t m = wanted < left ? wanted : left;
        touch_runs(&c->row, c->next, m, store);
        c->next += m;
        c->done += m * run;
        if (c->next == c->length && !row_next(c))
            return;
    }
}

/* 0: the layout is not a single nest of runs. */
static int cursor_begin(cursor *c, const tempi_layout *layout, char *memory)
{
    if (layout->nboxes != 1 || layout->boxes[0].table)
        return 0;
    *c = (cursor){.box = layout->boxes[0]};
    row_begin(c, memory + c->box.offset);
    return 1;
}

int bench_bound_copy(const void *argument)
{
    const struct bench_copy *b = argument;
    cursor from, to;
    if (!cursor_begin(&from, b->from, b->source) || !cursor_begin(&to, b->to, b->target))
        return 1;
    for (int64_t upto = TILE; upto < b->bytes + TILE; upto += TILE) {
        reach(&from, upto, 0);
        reach(&to, upto, 1);
    }
    return 0;
}
