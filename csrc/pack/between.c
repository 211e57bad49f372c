/* between.c: from one layout to another without packed bytes in between.
 *
 * Packed bytes have the same order on both sides, so the two nests of dims are cut at the same
 * places: a dim of 8 steps beside dims of 2 and 4 becomes two dims. Each of the new dims then has
 * one stride on either side, which is what the kernels want. */
#include "pack/copy_run.h"
#include "pack/nest.h"

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

bool tempi_copy_between(const tempi_op *from, const tempi_op *to, bool nontemporal)
{
    /* Not initialised: to zero its dims takes longer than to set those there are. */
    tempi_nest nest;
    tempi_dim dims[TEMPI_MAX_DIMS + 1]; /* innermost first */
    int64_t source, target;
    side f, t;
    int n = 0;
    if (from->n != to->n || from->n == 0 || !side_begin(&f, from, &source) ||
        !side_begin(&t, to, &target))
        return false;
    if (!f.box && !t.box) {
        tempi_copy_run((char *)to->mem + target, (const char *)from->mem + source, from->n,
                       nontemporal);
        return true;
    }
    nest.run = 1;
    while (f.count > 1 && t.count > 1) {
        const int64_t m = f.count < t.count ? f.count : t.count;
        if (!divides(f.count, t.count) || n == TEMPI_MAX_DIMS + 1)
            return false;
        if (n == 0 && f.stride == nest.run && t.stride == nest.run)
            nest.run *= m;
        else
            dims[n++] = (tempi_dim){m, f.stride, t.stride};
        side_step(&f, m);
        side_step(&t, m);
    }
    if (nest.run < PERMUTED_RUN && tempi_kernels_get()->permutes)
        return false;
    nest.mem = (char *)from->mem + source;
    nest.packed = (char *)to->mem + target;
    nest.entries = NULL;
    nest.direction = TEMPI_PACK;
    nest.nontemporal = nontemporal;
    nest.whole = from->n;
    nest.ndims = n;
    for (int i = 0; i < n; ++i)
        nest.dims[i] = dims[n - 1 - i];
    tempi_nest_copy(&nest);
    return true;
}
