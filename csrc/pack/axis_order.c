/* axis_order.c: the order of the axes of a copy.
 *
 * Bytes may be moved in any order, so the order is chosen for the caches:
 * 1. A transpose (dense on one side along one axis, on the other side along another) has these two
 *    axes innermost: its kernel traverses them in tiles.
 * 2. Otherwise axes are sorted by the distance that one step covers on both sides together.
 * 3. If an outer axis stays within the lines that the innermost one touches, and these lines are
 *    too many to stay in the cache until their next use, the innermost axis is done in blocks.
 */
#include "pack/axis_order.h"

enum {
    LINE = 64,
    NEAR_BYTES = 16 << 10, /* lines of one innermost row that stay in a level 1 cache */
    BLOCK_BYTES = 8 << 10,
    TILE_BYTES = 32, /* less than this along an axis is not worth a tile */
};

static int64_t distance(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

static int64_t axis_distance(const tempi_axis *axis)
{
    return distance(axis->d) + distance(axis->s);
}

/* Moves axis `from` to position `to`, keeping the order of the others. */
static void axis_move(tempi_axis *axes, int from, int to)
{
    const tempi_axis moved = axes[from];
    for (; from < to; from++)
        axes[from] = axes[from + 1];
    for (; from > to; from--)
        axes[from] = axes[from - 1];
    axes[to] = moved;
}

static void sort_axes(tempi_axis *axes, int n)
{
    for (int i = 1; i < n; i++) {
        const int64_t step = axis_distance(&axes[i]);
        int to = i;
        while (to > 0 && axis_distance(&axes[to - 1]) > step)
            to--;
        if (to < i)
            axis_move(axes, i, to);
    }
}

/* Finds the two axes of a transpose, if they exist and are long enough for tiles. */
static int find_transpose(const tempi_axis *axes, int n, int64_t run, int *dense_dst,
                          int *dense_src)
{
    int a = -1;
    int b = -1;
    for (int i = 0; i < n; i++) {
        if (axes[i].n * run < TILE_BYTES)
            continue;
        if (axes[i].d == run)
            a = i;
        else if (axes[i].s == run)
            b = i;
    }
    *dense_dst = a;
    *dense_src = b;
    return a >= 0 && b >= 0;
}

/* Whether steps of `outer` stay in the lines that a long row of n steps of `inner` touches. */
static int revisits(int64_t inner, int64_t outer, int64_t n)
{
    const int64_t step = distance(inner) < LINE ? distance(inner) : LINE;
    return distance(outer) < LINE && distance(outer) < distance(inner) && n * step > NEAR_BYTES;
}

int64_t tempi_order_axes(tempi_axis *axes, int n, int64_t run)
{
    if (n < 2)
        return 0;
    int a, b;
    if (run <= 16 && find_transpose(axes, n, run, &a, &b)) {
        axis_move(axes, a, 0);
        axis_move(axes, b < a ? b + 1 : b, 1);
        return 0;
    }
    sort_axes(axes, n);
    const tempi_axis *x = &axes[0];
    int found = 0;
    for (int i = n - 1; i > 0; i--)
        if (revisits(x->s, axes[i].s, x->n) || revisits(x->d, axes[i].d, x->n))
            found = i;
    if (!found)
        return 0;
    axis_move(axes, found, 1);
    const int64_t step = distance(x->s) > distance(x->d) ? distance(x->s) : distance(x->d);
    return BLOCK_BYTES / (step < LINE ? step : LINE);
}
