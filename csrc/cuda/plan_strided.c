/* plan_strided.c: strided memory to strided memory, without a packed buffer between.
 *
 * Both sides are nests over the same packed stream. They are refined against each other, innermost
 * axis first, until every axis of one is an axis of the other:
 *
 *   source        run 64 | 8 rows            blocks of     run 16 | 4 x 16 | 8 rows
 *   destination   run 16 | 32 rows      ->   16 bytes:     run 16 | 4      | 8
 *
 * An axis of 32 is cut into 4 and 8; counts without such a common cut have no plan. */
#include "cuda/plan_piece.h"

#include <stdlib.h>

/* The rest of one side: axis k of the nest, of which `taken` parts have been made. */
typedef struct side {
    tempi_piece piece;
    int k; /* -1: the run */
    tempi_piece_axis axis;
    bool table;
    bool done;
} side;

static void side_axis(side *s)
{
    s->done = s->k >= s->piece.naxes;
    if (s->done)
        return;
    if (s->k < 0) {
        s->axis = (tempi_piece_axis){s->piece.run, 1, 1, 1};
        s->table = s->piece.table_axis == TEMPI_RUN_AXIS;
    } else {
        s->axis = s->piece.axes[s->k];
        s->table = s->piece.table_axis == s->k;
    }
}

static void side_next(side *s)
{
    s->k++;
    side_axis(s);
}

/* Takes the inner n of the axis; false: the axis cannot be cut there. */
static bool side_take(side *s, int64_t n)
{
    if (n == s->axis.n) {
        side_next(s);
        return true;
    }
    const bool last = s->k == s->piece.naxes - 1;
    if (s->table || (!last && s->axis.n % n != 0))
        return false;
    s->axis.n = s->axis.n / n + (s->axis.n % n != 0);
    s->axis.d *= n;
    s->axis.s *= n;
    s->axis.p *= n;
    return true;
}

/* Makes one axis of the common nest, from n inner indices of both sides. */
static bool common_axis(tempi_piece *out, const side *dst, const side *src, int64_t n, bool run)
{
    if (dst->table && src->table)
        return false;
    /* A table with unequal steps has its positions on one side only. */
    const bool step_differs = dst->axis.p != src->axis.p && n > 1;
    if (step_differs)
        return false;
    if (run)
        out->run = n;
    else if (out->naxes == TEMPI_PIECE_AXES)
        return false;
    else
        out->axes[out->naxes++] = (tempi_piece_axis){n, dst->axis.d, src->axis.s, dst->axis.p};
    if (!dst->table && !src->table)
        return true;
    const tempi_piece *of = dst->table ? &dst->piece : &src->piece;
    out->table_axis = run ? TEMPI_RUN_AXIS : out->naxes - 1;
    out->table_in_dst = dst->table;
    out->entries = of->entries;
    out->offsets = of->offsets;
    out->positions = of->positions;
    out->guide = of->guide;
    out->start = of->start;
    out->form = of->form;
    return true;
}

/* Makes the common nest, as far as the shorter side goes. */
static bool refine(side *dst, side *src, tempi_piece *out)
{
    *out = (tempi_piece){.dst = dst->piece.src, .src = src->piece.src, .table_axis = TEMPI_NO_AXIS};
    dst->k = src->k = -1;
    side_axis(dst);
    side_axis(src);
    for (bool run = true; !dst->done && !src->done; run = false) {
        const int64_t n = dst->axis.n < src->axis.n ? dst->axis.n : src->axis.n;
        if (!common_axis(out, dst, src, n, run) || !side_take(dst, n) || !side_take(src, n))
            return false;
    }
    out->end = tempi_piece_size(out);
    return true;
}

/* Plans the part of the first n bytes of the stream that lies in both boxes. */
static int pair_boxes(const tempi_side *to, const tempi_box *to_box, const tempi_side *from,
                      const tempi_box *from_box, int64_t n, const tempi_plan_hooks *hooks,
                      tempi_plan *plan)
{
    side dst, src;
    bool dst_empty, src_empty;
    tempi_piece piece;
    int status = tempi_piece_of_box(to->layout, to_box, to->count, to->mem, hooks, &dst.piece,
                                    &dst_empty);
    if (status == TEMPI_OK)
        status = tempi_piece_of_box(from->layout, from_box, from->count, from->mem, hooks,
                                    &src.piece, &src_empty);
    if (status != TEMPI_OK)
        return status;
    if (dst_empty && src_empty)
        return TEMPI_OK;
    const int64_t start = tempi_box_start(to_box);
    if (dst_empty || src_empty || start != tempi_box_start(from_box))
        return TEMPI_ERR_UNSUPPORTED;
    const int64_t wanted = tempi_piece_before(&src.piece, n - start);
    if (wanted != tempi_piece_before(&dst.piece, n - start))
        return TEMPI_ERR_UNSUPPORTED;
    tempi_piece_fold(&dst.piece);
    tempi_piece_fold(&src.piece);
    if (!refine(&dst, &src, &piece) || piece.end < wanted)
        return TEMPI_ERR_UNSUPPORTED;
    piece.end = wanted;
    return tempi_plan_add_piece(plan, &piece);
}

static int pair_all(const tempi_side *src, const tempi_side *dst, int64_t n,
                    const tempi_plan_hooks *hooks, tempi_plan *plan)
{
    if (src->layout->nboxes != dst->layout->nboxes)
        return TEMPI_ERR_UNSUPPORTED;
    for (int b = 0; b < src->layout->nboxes; b++) {
        const int status = pair_boxes(dst, &dst->layout->boxes[b], src, &src->layout->boxes[b], n,
                                      hooks, plan);
        if (status != TEMPI_OK)
            return status;
    }
    return TEMPI_OK;
}

int tempi_plan_add_move(tempi_plan *plan, const tempi_side *src, const tempi_side *dst, int64_t n,
                        const tempi_plan_hooks *hooks)
{
    const int before = plan->room->npieces;
    const int status = n > 0 ? pair_all(src, dst, n, hooks, plan) : TEMPI_OK;
    return status == TEMPI_OK ? tempi_plan_take_copy(plan, before, true) : status;
}

int tempi_cuda_plan_strided(const tempi_side *src, const tempi_side *dst, int64_t n,
                            const tempi_plan_hooks *hooks, tempi_plan *plan)
{
    if (!tempi_plan_reset(plan))
        return TEMPI_ERR_MEMORY;
    int status = tempi_plan_add_move(plan, src, dst, n, hooks);
    if (status == TEMPI_OK)
        status = tempi_plan_finish(plan, hooks);
    if (status != TEMPI_OK)
        tempi_plan_reset(plan);
    return status;
}
