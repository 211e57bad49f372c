#include "transfer/bounce_buffer.h"
#include "base/budget.h"
#include "choose/choose.h"
#include "datatype/layout.h"
#include "pack/parts.h"
#include "transfer/packed_buffer.h"
#include "transfer/staging.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- pieces ---------------------------------------------------------------------------------- */

void tempi_bounce_buffer_open(tempi_bounce_buffer *bounce, const void *mem)
{
    *bounce = (tempi_bounce_buffer){.mem = (char *)(uintptr_t)mem};
}

static tempi_bounce_buffer_piece *pieces_of(tempi_bounce_buffer *bounce)
{
    return bounce->pieces ? bounce->pieces : &bounce->one;
}

static const tempi_bounce_buffer_piece *piece(const tempi_bounce_buffer *bounce, int i)
{
    return bounce->pieces ? &bounce->pieces[i] : &bounce->one;
}

static bool make_room(tempi_bounce_buffer *bounce)
{
    if (bounce->npieces < 1 || bounce->npieces < bounce->room)
        return true;
    const int room = bounce->room ? 2 * bounce->room : 16;
    tempi_bounce_buffer_piece *more = realloc(bounce->pieces, (size_t)room * sizeof *more);
    if (!more)
        return false;
    if (!bounce->pieces)
        more[0] = bounce->one;
    bounce->pieces = more;
    bounce->room = room;
    return true;
}

int tempi_bounce_buffer_add(tempi_bounce_buffer *bounce, const tempi_bounce_buffer_piece *added)
{
    int64_t bytes;
    int status = TEMPI_OK;
    if (tempi_mul64(added->count, added->layout->size, &bytes) ||
        tempi_add64(bounce->bytes, bytes, &bytes))
        status = TEMPI_ERR_OVERFLOW;
    else if (!make_room(bounce))
        status = TEMPI_ERR_MEMORY;
    if (status != TEMPI_OK) {
        tempi_parts_free(added->parts);
        return status;
    }
    (void)tempi_layout_retain(added->layout);
    pieces_of(bounce)[bounce->npieces++] = *added;
    bounce->bytes = bytes;
    return TEMPI_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* [*lo, *hi): the addresses that the piece touches. */
static bool span_of(const tempi_bounce_buffer *bounce, const tempi_bounce_buffer_piece *p,
                    int64_t *lo, int64_t *hi)
{
    int64_t at, last;
    if (tempi_mul64(p->count - 1, p->layout->extent, &last) ||
        tempi_add64((int64_t)(intptr_t)bounce->mem, p->displacement, &at))
        return false;
    return !tempi_add64(at, p->layout->true_lb + (last < 0 ? last : 0), lo) &&
           !tempi_add64(at, p->layout->true_ub + (last > 0 ? last : 0), hi);
}

enum { LINE = 64, PAGE = 4096 };

/* False: the gaps outweigh the bytes that move; then map pages, of which the gaps stay untouched.
 */
static bool is_dense(int64_t span, int64_t bytes)
{
    return span <= PAGE || span / 2 <= bytes;
}

/* Counts the memory against the bound, which a larger message exceeds: only tempi can carry it. */
static void count_in(tempi_bounce_buffer *bounce)
{
    if (tempi_budget_take(bounce->bytes, bounce->bytes))
        bounce->budgeted = bounce->bytes;
}

/* Maps system pages: only touched pages cost memory. */
static void *map(tempi_bounce_buffer *bounce, int64_t span)
{
    const int sparse = is_dense(span, bounce->bytes) ? 0 : MAP_NORESERVE;
    void *block = mmap(NULL, (size_t)span, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | sparse, -1, 0);
    if (block == MAP_FAILED)
        return NULL;
    bounce->mapped = (size_t)span;
    count_in(bounce);
    return block;
}

/* Adds the address range of each box of a part. */
static int note_part(tempi_sparse *sparse, const tempi_layout *part, int64_t at)
{
    int status = TEMPI_OK;
    for (int b = 0; b < part->nboxes && status == TEMPI_OK; ++b) {
        int64_t low, high;
        if (!tempi_box_bounds(&part->boxes[b], &low, &high) || tempi_add64(at, low, &low) ||
            tempi_add64(at, high, &high))
            return TEMPI_ERR_OVERFLOW;
        status = tempi_sparse_add(sparse, low, high);
    }
    return status;
}

/* The segments that the pieces touch, and their total span [*lo, *hi). */
static int segments_of(const tempi_bounce_buffer *bounce, tempi_sparse *sparse, int64_t *lo,
                       int64_t *hi)
{
    int status = TEMPI_OK;
    for (int i = 0; i < bounce->npieces && status == TEMPI_OK; ++i) {
        const tempi_bounce_buffer_piece *p = piece(bounce, i);
        int64_t from, to;
        if (!span_of(bounce, p, &from, &to))
            return TEMPI_ERR_OVERFLOW;
        *lo = i == 0 || from < *lo ? from : *lo;
        *hi = i == 0 || to > *hi ? to : *hi;
        if (!p->parts)
            status = tempi_sparse_add(sparse, from, to);
        for (int k = 0; p->parts && k < p->parts->n && status == TEMPI_OK; ++k)
            status = note_part(sparse, &p->parts->part[k].layout,
                               (int64_t)(intptr_t)bounce->mem + p->displacement);
    }
    return status;
}

static int take_sparse(tempi_bounce_buffer *bounce)
{
    const int status = tempi_sparse_map(&bounce->sparse);
    if (status != TEMPI_OK)
        return status;
    count_in(bounce);
    bounce->given = (char *)((uintptr_t)bounce->mem + (uintptr_t)bounce->sparse.shift);
    return TEMPI_OK;
}

/* The bounce buffer has the original's offset within a page, so that alignment is the same. */
static int take_block(tempi_bounce_buffer *bounce, int64_t lo, int64_t hi)
{
    int64_t span;
    if (__builtin_sub_overflow(hi, lo, &span) || tempi_add64(span, PAGE, &span))
        return TEMPI_ERR_OVERFLOW;
    int64_t inside = lo & (LINE - 1);
    if (is_dense(span - PAGE, bounce->bytes))
        bounce->block = tempi_stage_get(span - PAGE + LINE);
    if (!bounce->block) {
        inside = lo & (PAGE - 1);
        bounce->block = map(bounce, span);
    }
    if (!bounce->block)
        return TEMPI_ERR_MEMORY;
    const uintptr_t first = (uintptr_t)bounce->block + (uintptr_t)inside;
    bounce->given = (char *)(first - (uintptr_t)lo + (uintptr_t)bounce->mem);
    return TEMPI_OK;
}

int tempi_bounce_buffer_take(tempi_bounce_buffer *bounce)
{
    int64_t lo = 0, hi = 0;
    if (bounce->npieces == 1 && !bounce->one.parts)
        return span_of(bounce, &bounce->one, &lo, &hi) ? take_block(bounce, lo, hi)
                                                       : TEMPI_ERR_OVERFLOW;
    const int status = segments_of(bounce, &bounce->sparse, &lo, &hi);
    if (status != TEMPI_OK)
        return status;
    return tempi_sparse_join(&bounce->sparse) > 1 ? take_sparse(bounce)
                                                  : take_block(bounce, lo, hi);
}

void tempi_bounce_buffer_close(tempi_bounce_buffer *bounce)
{
    for (int i = 0; i < bounce->npieces; ++i) {
        tempi_layout_release(piece(bounce, i)->layout);
        tempi_parts_free(piece(bounce, i)->parts);
    }
    free(bounce->pieces);
    tempi_sparse_close(&bounce->sparse);
    if (bounce->mapped)
        munmap(bounce->block, bounce->mapped);
    else
        tempi_stage_put(bounce->block);
    if (bounce->budgeted)
        tempi_budget_give(bounce->budgeted);
    *bounce = (tempi_bounce_buffer){.mem = NULL};
}

/* ---- moving ---------------------------------------------------------------------------------- */

/* Limits of one step: operations in one launch, bytes of intermediate packed data. */
enum { OPERATIONS = 64, FRAGMENT = 8 << 20 };

typedef struct load {
    const tempi_bounce_buffer *bounce;
    int direction;
    int n;
    int64_t bytes;
    tempi_op ops[OPERATIONS];
    /* The element's position in the bounce buffer; NULL: copied there directly. */
    char *there[OPERATIONS];
} load;

/* Copies between packed bytes and the bounce buffer. */
static void move_bounce(const load *l, int i)
{
    const tempi_op *op = &l->ops[i];
    if (!l->there[i])
        return;
    if (l->direction == TEMPI_PACK)
        tempi_unpack(op->layout, op->count, op->packed, op->first, op->n, l->there[i]);
    else
        tempi_pack(op->layout, op->count, l->there[i], op->first, op->n, op->packed);
}

static int flush(load *l, int status)
{
    for (int i = 0; status == TEMPI_OK && l->direction == TEMPI_UNPACK && i < l->n; ++i)
        move_bounce(l, i);
    if (status == TEMPI_OK && l->n > 0)
        status = tempi_pack_run(l->ops, l->n);
    for (int i = 0; status == TEMPI_OK && l->direction == TEMPI_PACK && i < l->n; ++i)
        move_bounce(l, i);
    for (int i = 0; i < l->n; ++i)
        if (l->there[i])
            tempi_packed_put(&l->ops[i]);
    l->n = 0;
    l->bytes = 0;
    return status;
}

/* A single run is copied directly. */
static bool is_one_run(const tempi_bounce_buffer_piece *p)
{
    return p->layout->dense && !p->parts;
}

/* Kernels write to or read from pinned memory, as for MPI_Pack and MPI_Unpack. Parts in several
 * memories already have methods, which stay: pending operations share the same parts. */
static int method_of(const tempi_op *op)
{
    if (op->parts)
        return TEMPI_METHOD_MIXED;
    if (op->device < 0)
        return TEMPI_METHOD_HOST;
    const tempi_device_query device = {.about = {.packed = TEMPI_PACKED_PINNED,
                                                 .memory = TEMPI_TABLES_OF_DEVICE},
                                       .layout = op->layout,
                                       .address = op->mem,
                                       .device = op->device};
    return (int)tempi_choose(NULL, &(tempi_query){.operation = op->direction == TEMPI_PACK
                                                                   ? TEMPI_OP_PACK
                                                                   : TEMPI_OP_UNPACK,
                                                  .bytes = op->n,
                                                  .device = &device});
}

static int put(load *l, const tempi_bounce_buffer_piece *p, int64_t first, int64_t n)
{
    tempi_op *op = &l->ops[l->n];
    char *const place = l->bounce->given + p->displacement;
    *op = (tempi_op){.layout = p->layout,
                     .count = p->count,
                     .mem = l->bounce->mem + p->displacement,
                     .first = first,
                     .n = n,
                     .direction = l->direction,
                     .device = p->device,
                     .parts = p->parts};
    l->there[l->n] = NULL;
    if (is_one_run(p)) {
        op->method = p->device < 0 ? TEMPI_METHOD_HOST : TEMPI_METHOD_STAGED;
        op->packed = place + p->layout->true_lb + first;
    } else {
        op->method = method_of(op);
        if (!tempi_packed_get(op, true))
            return TEMPI_ERR_MEMORY;
        l->there[l->n] = place;
    }
    ++l->n;
    l->bytes += n;
    return TEMPI_OK;
}

/* Moves bytes [first, end) of the piece's packed stream. */
static int move_piece(load *l, const tempi_bounce_buffer_piece *p, int64_t first, int64_t end)
{
    const int64_t step = is_one_run(p) ? end - first : FRAGMENT;
    int status = TEMPI_OK;
    for (; first < end && status == TEMPI_OK; first += step) {
        if (l->n == OPERATIONS || l->bytes >= FRAGMENT)
            status = flush(l, status);
        if (status == TEMPI_OK)
            status = put(l, p, first, end - first < step ? end - first : step);
    }
    return status;
}

static void load_open(load *l, const tempi_bounce_buffer *bounce, int direction)
{
    l->bounce = bounce;
    l->direction = direction;
    l->n = 0;
    l->bytes = 0;
}

static int move(const tempi_bounce_buffer *bounce, int direction)
{
    load l;
    load_open(&l, bounce, direction);
    int status = TEMPI_OK;
    for (int i = 0; i < bounce->npieces && status == TEMPI_OK; ++i) {
        const tempi_bounce_buffer_piece *p = piece(bounce, i);
        status = move_piece(&l, p, 0, p->layout->size * p->count);
    }
    return flush(&l, status);
}

int tempi_bounce_buffer_move(const tempi_bounce_buffer *bounce, int direction, int64_t first,
                             int64_t n)
{
    load l;
    load_open(&l, bounce, direction);
    return flush(&l, move_piece(&l, piece(bounce, 0), first, first + n));
}

int tempi_bounce_buffer_fill(const tempi_bounce_buffer *bounce)
{
    return move(bounce, TEMPI_PACK);
}

int tempi_bounce_buffer_drain(const tempi_bounce_buffer *bounce)
{
    return move(bounce, TEMPI_UNPACK);
}
