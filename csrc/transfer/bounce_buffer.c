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

void tempi_bounce_buffer_open(tempi_bounce_buffer *shadow, const void *mem)
{
    *shadow = (tempi_bounce_buffer){.mem = (char *)(uintptr_t)mem};
}

static tempi_bounce_buffer_piece *pieces_of(tempi_bounce_buffer *shadow)
{
    return shadow->pieces ? shadow->pieces : &shadow->one;
}

static const tempi_bounce_buffer_piece *piece(const tempi_bounce_buffer *shadow, int i)
{
    return shadow->pieces ? &shadow->pieces[i] : &shadow->one;
}

static bool make_room(tempi_bounce_buffer *shadow)
{
    if (shadow->npieces < 1 || shadow->npieces < shadow->room)
        return true;
    const int room = shadow->room ? 2 * shadow->room : 16;
    tempi_bounce_buffer_piece *more = realloc(shadow->pieces, (size_t)room * sizeof *more);
    if (!more)
        return false;
    if (!shadow->pieces)
        more[0] = shadow->one;
    shadow->pieces = more;
    shadow->room = room;
    return true;
}

int tempi_bounce_buffer_add(tempi_bounce_buffer *shadow, const tempi_bounce_buffer_piece *added)
{
    int64_t bytes;
    int status = TEMPI_OK;
    if (tempi_mul64(added->count, added->layout->size, &bytes) ||
        tempi_add64(shadow->bytes, bytes, &bytes))
        status = TEMPI_ERR_OVERFLOW;
    else if (!make_room(shadow))
        status = TEMPI_ERR_MEMORY;
    if (status != TEMPI_OK) {
        tempi_parts_free(added->parts);
        return status;
    }
    (void)tempi_layout_retain(added->layout);
    pieces_of(shadow)[shadow->npieces++] = *added;
    shadow->bytes = bytes;
    return TEMPI_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* [*lo, *hi): the addresses that the piece touches. */
static bool span_of(const tempi_bounce_buffer *shadow, const tempi_bounce_buffer_piece *p,
                    int64_t *lo, int64_t *hi)
{
    int64_t at, last;
    if (tempi_mul64(p->count - 1, p->layout->extent, &last) ||
        tempi_add64((int64_t)(intptr_t)shadow->mem, p->displacement, &at))
        return false;
    return !tempi_add64(at, p->layout->true_lb + (last < 0 ? last : 0), lo) &&
           !tempi_add64(at, p->layout->true_ub + (last > 0 ? last : 0), hi);
}

enum { LINE = 64, PAGE = 4096 };

/* So much beyond the bytes that move, and the gaps are left to the pages that nobody touches. */
static bool is_dense(int64_t span, int64_t bytes)
{
    return span <= PAGE || span / 2 <= bytes;
}

/* The bound cannot be kept where the message is larger, because nobody else can carry it. */
static void count_in(tempi_bounce_buffer *shadow)
{
    if (tempi_budget_take(shadow->bytes, shadow->bytes))
        shadow->budgeted = shadow->bytes;
}

/* Pages of the system: they cost what is touched of them. */
static void *map(tempi_bounce_buffer *shadow, int64_t span)
{
    const int sparse = is_dense(span, shadow->bytes) ? 0 : MAP_NORESERVE;
    void *block = mmap(NULL, (size_t)span, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | sparse, -1, 0);
    if (block == MAP_FAILED)
        return NULL;
    shadow->mapped = (size_t)span;
    count_in(shadow);
    return block;
}

/* The addresses that each box of a part touches. */
static int note_part(tempi_sparse *apart, const tempi_layout *part, int64_t at)
{
    int status = TEMPI_OK;
    for (int b = 0; b < part->nboxes && status == TEMPI_OK; ++b) {
        int64_t low, high;
        if (!tempi_box_bounds(&part->boxes[b], &low, &high) || tempi_add64(at, low, &low) ||
            tempi_add64(at, high, &high))
            return TEMPI_ERR_OVERFLOW;
        status = tempi_sparse_add(apart, low, high);
    }
    return status;
}

/* The stretches of addresses that the pieces touch, and in all [*lo, *hi). */
static int stretches_of(const tempi_bounce_buffer *shadow, tempi_sparse *apart, int64_t *lo,
                        int64_t *hi)
{
    int status = TEMPI_OK;
    for (int i = 0; i < shadow->npieces && status == TEMPI_OK; ++i) {
        const tempi_bounce_buffer_piece *p = piece(shadow, i);
        int64_t from, to;
        if (!span_of(shadow, p, &from, &to))
            return TEMPI_ERR_OVERFLOW;
        *lo = i == 0 || from < *lo ? from : *lo;
        *hi = i == 0 || to > *hi ? to : *hi;
        if (!p->parts)
            status = tempi_sparse_add(apart, from, to);
        for (int k = 0; p->parts && k < p->parts->n && status == TEMPI_OK; ++k)
            status = note_part(apart, &p->parts->part[k].layout,
                               (int64_t)(intptr_t)shadow->mem + p->displacement);
    }
    return status;
}

static int take_sparse(tempi_bounce_buffer *shadow)
{
    const int status = tempi_sparse_map(&shadow->apart);
    if (status != TEMPI_OK)
        return status;
    count_in(shadow);
    shadow->given = (char *)((uintptr_t)shadow->mem + (uintptr_t)shadow->apart.shift);
    return TEMPI_OK;
}

/* The shadow lies in its pages as the buffer does in its own, so that alignment is the same. */
static int take_block(tempi_bounce_buffer *shadow, int64_t lo, int64_t hi)
{
    int64_t span;
    if (__builtin_sub_overflow(hi, lo, &span) || tempi_add64(span, PAGE, &span))
        return TEMPI_ERR_OVERFLOW;
    int64_t inside = lo & (LINE - 1);
    if (is_dense(span - PAGE, shadow->bytes))
        shadow->block = tempi_stage_get(span - PAGE + LINE);
    if (!shadow->block) {
        inside = lo & (PAGE - 1);
        shadow->block = map(shadow, span);
    }
    if (!shadow->block)
        return TEMPI_ERR_MEMORY;
    const uintptr_t first = (uintptr_t)shadow->block + (uintptr_t)inside;
    shadow->given = (char *)(first - (uintptr_t)lo + (uintptr_t)shadow->mem);
    return TEMPI_OK;
}

int tempi_bounce_buffer_take(tempi_bounce_buffer *shadow)
{
    int64_t lo = 0, hi = 0;
    if (shadow->npieces == 1 && !shadow->one.parts)
        return span_of(shadow, &shadow->one, &lo, &hi) ? take_block(shadow, lo, hi)
                                                       : TEMPI_ERR_OVERFLOW;
    const int status = stretches_of(shadow, &shadow->apart, &lo, &hi);
    if (status != TEMPI_OK)
        return status;
    return tempi_sparse_join(&shadow->apart) > 1 ? take_sparse(shadow) : take_block(shadow, lo, hi);
}

void tempi_bounce_buffer_close(tempi_bounce_buffer *shadow)
{
    for (int i = 0; i < shadow->npieces; ++i) {
        tempi_layout_release(piece(shadow, i)->layout);
        tempi_parts_free(piece(shadow, i)->parts);
    }
    free(shadow->pieces);
    tempi_sparse_close(&shadow->apart);
    if (shadow->mapped)
        munmap(shadow->block, shadow->mapped);
    else
        tempi_stage_put(shadow->block);
    if (shadow->budgeted)
        tempi_budget_give(shadow->budgeted);
    *shadow = (tempi_bounce_buffer){.mem = NULL};
}

/* ---- moving ---------------------------------------------------------------------------------- */

/* What moves at a time: so many operations are one launch, so many bytes are packed in between. */
enum { OPERATIONS = 64, FRAGMENT = 8 << 20 };

typedef struct load {
    const tempi_bounce_buffer *shadow;
    int direction;
    int n;
    int64_t bytes;
    tempi_op ops[OPERATIONS];
    char *there[OPERATIONS]; /* the element's place in the shadow; NULL: the bytes go there by
                                themselves */
} load;

/* Between packed bytes and the shadow. */
static void move_shadow(const load *l, int i)
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
        move_shadow(l, i);
    if (status == TEMPI_OK && l->n > 0)
        status = tempi_pack_run(l->ops, l->n);
    for (int i = 0; status == TEMPI_OK && l->direction == TEMPI_PACK && i < l->n; ++i)
        move_shadow(l, i);
    for (int i = 0; i < l->n; ++i)
        if (l->there[i])
            tempi_packed_put(&l->ops[i]);
    l->n = 0;
    l->bytes = 0;
    return status;
}

/* One run is copied straight to its place. */
static bool is_one_run(const tempi_bounce_buffer_piece *p)
{
    return p->layout->dense && !p->parts;
}

/* Kernels bring the bytes to pinned memory or take them from there, as those of MPI_Pack and
 * MPI_Unpack do. Parts of several memories have methods of their own, which stay: operations that
 * wait to be run have the same parts. */
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
    char *const place = l->shadow->given + p->displacement;
    *op = (tempi_op){.layout = p->layout,
                     .count = p->count,
                     .mem = l->shadow->mem + p->displacement,
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

/* Bytes [first, end) of the piece's packed stream. */
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

static void load_open(load *l, const tempi_bounce_buffer *shadow, int direction)
{
    l->shadow = shadow;
    l->direction = direction;
    l->n = 0;
    l->bytes = 0;
}

static int move(const tempi_bounce_buffer *shadow, int direction)
{
    load l;
    load_open(&l, shadow, direction);
    int status = TEMPI_OK;
    for (int i = 0; i < shadow->npieces && status == TEMPI_OK; ++i) {
        const tempi_bounce_buffer_piece *p = piece(shadow, i);
        status = move_piece(&l, p, 0, p->layout->size * p->count);
    }
    return flush(&l, status);
}

int tempi_bounce_buffer_move(const tempi_bounce_buffer *shadow, int direction, int64_t first,
                             int64_t n)
{
    load l;
    load_open(&l, shadow, direction);
    return flush(&l, move_piece(&l, piece(shadow, 0), first, first + n));
}

int tempi_bounce_buffer_fill(const tempi_bounce_buffer *shadow)
{
    return move(shadow, TEMPI_PACK);
}

int tempi_bounce_buffer_drain(const tempi_bounce_buffer *shadow)
{
    return move(shadow, TEMPI_UNPACK);
}
