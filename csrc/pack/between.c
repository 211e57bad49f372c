/* between.c: from one layout to another without packed bytes in between.
 *
 * Packed bytes have the same order on both sides, so the two nests of dims are cut at the same
 * places: a dim of 8 steps beside dims of 2 and 4 becomes two dims. Each of the new dims then has
 * one stride on either side, which is what the kernels want. */
#include "pack/between.h"
#include "pack/copy_run.h"

/* Shorter runs are packed and unpacked several at a time where the processor permutes bytes. Runs
 * of 8 and 12 bytes take 1.6 times as long so, of 4 bytes 1.3 times, of 1 byte 0.4 (Zen 4). */
enum { PERMUTED_RUN = 4 };

/* The dims of one side, innermost first; the run is the first one, of single bytes. */
typedef struct side {
    const tempi_op *op;
    const tempi_box *box;  /* NULL: contiguous bytes */
    int left;              /* dims further out, of the box */
    int64_t count, stride; /* of what is left of the current one */
} side;

/* Steps over m steps of the current dim, which m divides. Mostly that is all of it, and a division
 * takes as long as to copy some runs. */
static void side_step(side *s, int64_t m)
{
    if (s->count != m) {
        s->count /= m;
        s->stride *= m;
        return;
    }
    s->count = 1;
    while (s->count == 1 && s->left > 0) {
        s->count = s->box->dims[--s->left].count;
        s->stride = s->box->dims[s->left].stride;
    }
    if (s->count == 1 && s->box) {
        s->count = s->op->count;
        s->stride = s->op->layout->extent;
        s->box = NULL;
    }
}

static bool side_begin(side *s, const tempi_op *op, int64_t *offset)
{
    const tempi_layout *layout = op->layout;
    *s = (side){.op = op, .count = op->n, .stride = 1};
    *offset = 0;
    if (!layout)
        return true;
    *offset = layout->true_lb;
    if (layout->dense)
        return true;
    const tempi_box *box = layout->boxes;
    if (layout->nboxes != 1 || box->table || box->space != 0)
        return false;
    s->box = box;
    s->left = box->ndims;
    s->count = box->run;
    *offset = box->offset;
    if (s->count == 1)
        side_step(s, 1);
    return true;
}

static bool divides(int64_t a, int64_t b)
{
    return a == b || (a > b ? a % b == 0 : b % a == 0);
}

typedef struct sides {
    side from, to;
    char *source, *target;
} sides;

static bool sides_begin(sides *s, const tempi_op *from, const tempi_op *to)
{
    int64_t source, target;
    if (from->n != to->n || from->n == 0 || !side_begin(&s->from, from, &source) ||
        !side_begin(&s->to, to, &target))
        return false;
    s->source = (char *)from->mem + source;
    s->target = (char *)to->mem + target;
    return true;
}

static bool are_contiguous(const sides *s)
{
    return !s->from.box && !s->to.box;
}

/* From the source as memory to the target as packed bytes, which have strides, too. */
static bool between(sides *s, bool nontemporal, tempi_nest *nest)
{
    tempi_dim dims[TEMPI_MAX_DIMS + 1]; /* innermost first */
    side *f = &s->from, *t = &s->to;
    int n = 0;
    nest->run = 1;
    while (f->count > 1 && t->count > 1) {
        const int64_t m = f->count < t->count ? f->count : t->count;
        if (!divides(f->count, t->count) || n == TEMPI_MAX_DIMS + 1)
            return false;
        if (n == 0 && f->stride == nest->run && t->stride == nest->run)
            nest->run *= m;
        else
            dims[n++] = (tempi_dim){m, f->stride, t->stride};
        side_step(f, m);
        side_step(t, m);
    }
    if (nest->run < PERMUTED_RUN && tempi_kernels_get()->permutes)
        return false;
    nest->mem = s->source;
    nest->packed = s->target;
    nest->entries = NULL;
    nest->direction = TEMPI_PACK;
    nest->nontemporal = nontemporal;
    nest->whole = f->op->n;
    nest->ndims = n;
    for (int i = 0; i < n; ++i)
        nest->dims[i] = dims[n - 1 - i];
    return true;
}

bool tempi_copy_between(const tempi_op *from, const tempi_op *to, bool nontemporal)
{
    /* Not initialised: to zero its dims takes longer than to set those there are. */
    tempi_nest nest;
    sides s;
    if (!sides_begin(&s, from, to))
        return false;
    if (are_contiguous(&s)) {
        tempi_copy_run(s.target, s.source, from->n, nontemporal);
        return true;
    }
    if (!between(&s, nontemporal, &nest))
        return false;
    tempi_nest_copy(&nest);
    return true;
}

bool tempi_between_begin(tempi_between *b, const tempi_op *from, const tempi_op *to,
                         bool nontemporal, int64_t bytes)
{
    sides s;
    if (!sides_begin(&s, from, to) || are_contiguous(&s) || !between(&s, nontemporal, &b->left) ||
        b->left.ndims == 0)
        return false;
    const int64_t each = from->n / b->left.dims[0].count;
    b->step = bytes > each ? bytes / each : 1;
    return true;
}

bool tempi_between_next(tempi_between *b)
{
    tempi_nest *nest = &b->left;
    tempi_dim *outer = &nest->dims[0];
    const int64_t left = outer->count, step = b->step < left ? b->step : left;
    outer->count = step;
    tempi_nest_copy(nest);
    outer->count = left - step;
    nest->mem += step * outer->stride;
    nest->packed += step * outer->packed_stride;
    return outer->count > 0;
}
