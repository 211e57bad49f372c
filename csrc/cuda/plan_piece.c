/* plan_piece.c: makes pieces from boxes, trims and measures them. */
#include "cuda/plan_piece.h"
#include "datatype/layout.h"

#include <string.h>

enum { WIDEST = 16 };

/* ---- making ---------------------------------------------------------------------------------- */

static void push_axis(tempi_piece *piece, int64_t n, int64_t stride, int64_t packed)
{
    if (n != 1)
        piece->axes[piece->naxes++] = (tempi_piece_axis){n, stride, stride, packed};
}

/* Adds the table as the next axis, or as the run. */
static int push_table(tempi_piece *piece, const tempi_box *box, const tempi_plan_hooks *hooks)
{
    tempi_device_table there;
    const tempi_table *table = box->table;
    const bool variable = box->run == 0;
    piece->entries = table->entries;
    if (table->n == 1) { /* a fixed offset, no axis */
        piece->src += (uint64_t)table->entries[0].offset;
        piece->run = variable ? table->entries[1].packed - table->entries[0].packed : piece->run;
        return TEMPI_OK;
    }
    if (!hooks->table)
        return TEMPI_ERR_UNSUPPORTED;
    const int status = hooks->table(hooks->context, table, variable, &there);
    if (status != TEMPI_OK)
        return status;
    piece->form = there.form;
    piece->offsets = there.address;
    piece->positions = there.form.step ? 0 : there.address + 16 * (uint64_t)there.form.packed_at;
    piece->guide = there.address + 16 * (uint64_t)there.form.guide_at;
    if (variable) {
        piece->table_axis = TEMPI_RUN_AXIS;
        piece->run = there.form.span;
        return TEMPI_OK;
    }
    piece->table_axis = piece->naxes;
    piece->axes[piece->naxes++] = (tempi_piece_axis){table->n, 0, 0, there.form.step};
    return TEMPI_OK;
}

int tempi_piece_of_box(const tempi_layout *layout, const tempi_box *box, int64_t count,
                       uint64_t mem, const tempi_plan_hooks *hooks, tempi_piece *piece, bool *empty)
{
    piece->dst = 0;
    piece->src = mem + (uint64_t)box->offset;
    piece->run = box->run;
    piece->naxes = 0;
    piece->table_axis = TEMPI_NO_AXIS;
    piece->table_in_dst = false;
    piece->start = 0;
    piece->offsets = piece->positions = piece->guide = 0;
    piece->entries = NULL;
    const int level = box->table ? tempi_box_level(box) : 0;
    for (int k = box->ndims; k >= 0; k--) {
        if (box->table && k == level) {
            const int status = box->table->n > 0 ? push_table(piece, box, hooks) : TEMPI_OK;
            if (status != TEMPI_OK)
                return status;
        }
        if (k > 0)
            push_axis(piece, box->dims[k - 1].count, box->dims[k - 1].stride,
                      box->dims[k - 1].packed_stride);
    }
    push_axis(piece, count, layout->extent, layout->size);
    *empty = (box->table && box->table->n < 1) || tempi_piece_size(piece) < 1;
    piece->first = 0;
    piece->end = tempi_piece_size(piece);
    return TEMPI_OK;
}

/* ---- measuring ------------------------------------------------------------------------------- */

int64_t tempi_piece_size(const tempi_piece *piece)
{
    int64_t size = piece->run;
    for (int k = 0; k < piece->naxes; k++)
        size *= piece->axes[k].n;
    return size;
}

static int64_t entry_position(const tempi_piece *piece, int64_t j)
{
    return piece->entries[j].packed - piece->entries[0].packed;
}

/* The last entry of the table axis at or before packed position x >= 0. */
static int64_t entry_at(const tempi_piece *piece, int64_t n, int64_t x)
{
    int64_t low = 0;
    int64_t high = n;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (entry_position(piece, middle) <= x)
            low = middle;
        else
            high = middle;
    }
    return low;
}

int64_t tempi_piece_before(const tempi_piece *piece, int64_t x)
{
    int64_t inside = tempi_piece_size(piece);
    int64_t before = 0;
    if (x <= 0)
        return 0;
    for (int k = piece->naxes - 1; k >= 0; k--) {
        const tempi_piece_axis *axis = &piece->axes[k];
        inside /= axis->n;
        int64_t i;
        if (k == piece->table_axis) {
            i = entry_at(piece, axis->n, x);
            x -= entry_position(piece, i);
        } else {
            i = x / axis->p < axis->n ? x / axis->p : axis->n - 1;
            x -= i * axis->p;
        }
        before += i * inside;
    }
    return before + (x < piece->run ? x : piece->run);
}

int tempi_piece_width(const tempi_piece *piece)
{
    uint64_t bits = piece->dst | piece->src |
                    (uint64_t)(piece->run | piece->first | piece->end | piece->start);
    for (int k = 0; k < piece->naxes; k++)
        bits |= (uint64_t)(piece->axes[k].d | piece->axes[k].s);
    if (piece->table_axis != TEMPI_NO_AXIS)
        bits |= piece->form.bits;
    bits |= WIDEST;
    return (int)(bits & -bits);
}

bool tempi_piece_contiguous(const tempi_piece *piece)
{
    return piece->naxes == 0 && piece->table_axis == TEMPI_NO_AXIS;
}

static bool add_reach(int64_t *sum, int64_t n, int64_t stride)
{
    int64_t far;
    if (tempi_mul64(n - 1, stride < 0 ? -stride : stride, &far) || tempi_add64(*sum, far, sum))
        return false;
    return *sum < INT32_MAX;
}

bool tempi_piece_fits_32bit(const tempi_piece *piece)
{
    int64_t d = piece->run, s = piece->run;
    if (piece->table_axis != TEMPI_NO_AXIS) {
        if (piece->form.wide || piece->run >= INT32_MAX)
            return false;
        /* The packed side of an irregular table uses its positions. */
        const int64_t reach = piece->form.reach + piece->form.span;
        d += reach;
        s += reach;
    }
    for (int k = 0; k < piece->naxes; k++)
        if (!add_reach(&d, piece->axes[k].n, piece->axes[k].d) ||
            !add_reach(&s, piece->axes[k].n, piece->axes[k].s))
            return false;
    return d < INT32_MAX && s < INT32_MAX;
}

/* ---- reshaping ------------------------------------------------------------------------------- */

static void remove_axis(tempi_piece *piece, int k)
{
    memmove(&piece->axes[k], &piece->axes[k + 1],
            (size_t)(piece->naxes - k - 1) * sizeof *piece->axes);
    piece->naxes--;
    if (piece->table_axis > k)
        piece->table_axis--;
}

/* Whether axis k continues where n steps along `inner` end. */
static bool goes_on(const tempi_piece_axis *axis, int64_t n, int64_t d, int64_t s, int64_t p)
{
    int64_t all_d, all_s;
    return !tempi_mul64(n, d, &all_d) && !tempi_mul64(n, s, &all_s) && axis->d == all_d &&
           axis->s == all_s && axis->p == n * p;
}

void tempi_piece_fold(tempi_piece *piece)
{
    for (int k = 0; k < piece->naxes;) {
        tempi_piece_axis *axis = &piece->axes[k];
        const tempi_piece_axis *inner = k > 0 ? axis - 1 : NULL;
        if (k == piece->table_axis) {
            k++;
        } else if (!inner && piece->table_axis != TEMPI_RUN_AXIS &&
                   goes_on(axis, piece->run, 1, 1, 1)) {
            piece->run *= axis->n;
            remove_axis(piece, k);
        } else if (inner && k - 1 != piece->table_axis &&
                   goes_on(axis, inner->n, inner->d, inner->s, inner->p)) {
            piece->axes[k - 1].n *= axis->n;
            remove_axis(piece, k);
        } else {
            k++;
        }
    }
}

void tempi_piece_shift(tempi_piece *piece, int k, int64_t i)
{
    if (k == TEMPI_RUN_AXIS) {
        /* The packed side advances; on the memory side of a table of runs the look-up does. */
        const bool looked_up = piece->table_axis == TEMPI_RUN_AXIS;
        piece->dst += looked_up && piece->table_in_dst ? 0 : (uint64_t)i;
        piece->src += looked_up && !piece->table_in_dst ? 0 : (uint64_t)i;
        piece->start += looked_up ? i : 0;
        return;
    }
    piece->dst += (uint64_t)(i * piece->axes[k].d);
    piece->src += (uint64_t)(i * piece->axes[k].s);
    if (k == piece->table_axis) {
        const uint64_t bytes = (uint64_t)i * (piece->form.wide ? 8 : 4);
        piece->offsets += bytes;
        piece->positions += piece->positions ? bytes : 0;
        piece->entries += i;
    }
}

/* Restricts [first, end) to index i of the outermost axis. */
static void enter_axis(tempi_piece *piece, int64_t inside, int64_t i)
{
    piece->first -= i * inside;
    piece->end -= i * inside;
}

void tempi_piece_trim(tempi_piece *piece)
{
    while (piece->naxes > 0) {
        const int k = piece->naxes - 1;
        const int64_t inside = tempi_piece_size(piece) / piece->axes[k].n;
        const int64_t low = piece->first / inside;
        const int64_t n = (piece->end - 1) / inside - low + 1;
        if (low > 0) {
            tempi_piece_shift(piece, k, low);
            enter_axis(piece, inside, low);
        }
        piece->axes[k].n = n;
        if (n > 1 || k == piece->table_axis) /* even a single entry needs the look-up */
            return;
        piece->naxes--;
    }
    tempi_piece_shift(piece, TEMPI_RUN_AXIS, piece->first);
    piece->end -= piece->first;
    piece->first = 0;
    piece->run = piece->end;
}
