/* plan.c: turns operations into pieces, and pieces into launches. Steps: see the head of plan.h. */
#include "cuda/plan_piece.h"
#include "cuda/strided_copy.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* A transpose this large gains more by tiles than a launch costs. */
    OWN_LAUNCH_BYTES = 1 << 20,
    /* More copies cost more calls than a launch and the look for its end. */
    COPIES_MOST = 2
};

/* ---- lists ----------------------------------------------------------------------------------- */

bool tempi_plan_grow(void **array, int *most, int n, size_t each)
{
    if (n < *most)
        return true;
    const int larger = *most ? *most * 2 : 8;
    void *moved = realloc(*array, (size_t)larger * each);
    if (!moved)
        return false;
    *array = moved;
    *most = larger;
    return true;
}

bool tempi_plan_reset(tempi_plan *plan)
{
    if (!plan->room)
        plan->room = calloc(1, sizeof *plan->room);
    plan->ncopies = plan->nlaunches = plan->npatches = 0;
    plan->nbytes = 0;
    if (plan->room)
        plan->room->npieces = 0;
    return plan->room != NULL;
}

void tempi_cuda_plan_free(tempi_plan *plan)
{
    if (plan->room)
        free(plan->room->pieces);
    free(plan->room);
    free(plan->copies);
    free(plan->launches);
    free(plan->bytes);
    *plan = (tempi_plan){0};
}

tempi_launch *tempi_plan_add_launch(tempi_plan *plan)
{
    void *list = plan->launches;
    if (!tempi_plan_grow(&list, &plan->room->most_launches, plan->nlaunches,
                         sizeof *plan->launches))
        return NULL;
    plan->launches = list;
    return &plan->launches[plan->nlaunches++];
}

static int push_copy(tempi_plan *plan, const tempi_device_copy *copy)
{
    void *list = plan->copies;
    if (!tempi_plan_grow(&list, &plan->room->most_copies, plan->ncopies, sizeof *plan->copies))
        return TEMPI_ERR_MEMORY;
    plan->copies = list;
    plan->copies[plan->ncopies++] = *copy;
    return TEMPI_OK;
}

static int add_copy(tempi_plan *plan, uint64_t dst, uint64_t src, int64_t n, bool by_kernel)
{
    return push_copy(plan,
                     &(tempi_device_copy){.dst = dst, .src = src, .n = n, .by_kernel = by_kernel});
}

static int push_piece(tempi_plan *plan, const tempi_piece *piece)
{
    tempi_plan_room *room = plan->room;
    void *list = room->pieces;
    if (!tempi_plan_grow(&list, &room->most_pieces, room->npieces, sizeof *room->pieces))
        return TEMPI_ERR_MEMORY;
    room->pieces = list;
    room->pieces[room->npieces++] = *piece;
    return TEMPI_OK;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Splits a trimmed piece into parts whose words can be numbered. */
static int split(tempi_plan *plan, const tempi_piece *piece)
{
    const int64_t limit = (int64_t)tempi_piece_width(piece) << TEMPI_WORDS_LOG2;
    if (piece->end <= limit)
        return push_piece(plan, piece);
    const int64_t inside = piece->naxes ? tempi_piece_size(piece) / piece->axes[piece->naxes - 1].n
                                        : 1;
    const int64_t step = (limit / inside > 0 ? limit / inside : 1) * inside;
    int status = TEMPI_OK;
    for (int64_t at = piece->first / step * step; at < piece->end && status == TEMPI_OK;
         at += step) {
        tempi_piece part = *piece;
        part.first = at > piece->first ? at : piece->first;
        part.end = least(at + step, piece->end);
        tempi_piece_trim(&part);
        status = split(plan, &part);
    }
    return status;
}

int tempi_plan_add_piece(tempi_plan *plan, const tempi_piece *piece)
{
    tempi_piece trimmed = *piece;
    if (piece->first >= piece->end)
        return TEMPI_OK;
    tempi_piece_fold(&trimmed);
    tempi_piece_trim(&trimmed);
    return split(plan, &trimmed);
}

/* Sets which side is memory and which is packed: the piece has its memory on both. */
static void set_direction(tempi_piece *piece, int direction, uint64_t packed)
{
    const bool unpack = direction == TEMPI_UNPACK;
    piece->dst = unpack ? piece->src : packed;
    piece->src = unpack ? packed : piece->src;
    piece->table_in_dst = unpack;
    for (int k = 0; k < piece->naxes; k++)
        *(unpack ? &piece->axes[k].s : &piece->axes[k].d) = piece->axes[k].p;
}

static int add_box(tempi_plan *plan, const tempi_op *op, const tempi_box *box,
                   const tempi_plan_hooks *hooks)
{
    tempi_piece piece;
    bool empty;
    if (hooks->takes && !hooks->takes(hooks->context, op, box))
        return TEMPI_OK;
    const int status = tempi_piece_of_box(op->layout, box, op->count, (uintptr_t)op->mem, hooks,
                                          &piece, &empty);
    if (status != TEMPI_OK || empty)
        return status;
    const int64_t from = op->first - tempi_box_start(box);
    piece.first = tempi_piece_before(&piece, from);
    piece.end = tempi_piece_before(&piece, from + op->n);
    set_direction(&piece, op->direction, (uintptr_t)op->packed - (uint64_t)from);
    return tempi_plan_add_piece(plan, &piece);
}

/* The packed side of the other methods may be pageable memory, which only a copy reaches. */
static bool is_for_kernels(const tempi_op *op)
{
    return op->method == TEMPI_METHOD_DEVICE || op->method == TEMPI_METHOD_ONE_SHOT || op->into;
}

static int add_dense(tempi_plan *plan, const tempi_op *op)
{
    const uint64_t mem = (uintptr_t)op->mem + (uint64_t)(op->layout->true_lb + op->first);
    const uint64_t packed = (uintptr_t)op->packed;
    return op->direction == TEMPI_UNPACK ? add_copy(plan, mem, packed, op->n, is_for_kernels(op))
                                         : add_copy(plan, packed, mem, op->n, is_for_kernels(op));
}

int tempi_plan_take_copy(tempi_plan *plan, int before, bool by_kernel)
{
    tempi_plan_room *room = plan->room;
    const tempi_piece *first = &room->pieces[before];
    int64_t n = 0;
    for (int i = before; i < room->npieces; i++) {
        const tempi_piece *piece = &room->pieces[i];
        if (!tempi_piece_contiguous(piece) || piece->dst != first->dst + (uint64_t)n ||
            piece->src != first->src + (uint64_t)n)
            return TEMPI_OK;
        n += piece->end;
    }
    if (n == 0)
        return TEMPI_OK;
    room->npieces = before;
    return add_copy(plan, first->dst, first->src, n, by_kernel);
}

static int add_op(tempi_plan *plan, const tempi_op *op, const tempi_plan_hooks *hooks)
{
    const int before = plan->room->npieces;
    if (op->n <= 0 || op->count <= 0)
        return TEMPI_OK;
    if (op->into) {
        const tempi_side src = tempi_side_of(op), dst = tempi_side_of(op->into);
        return tempi_plan_add_move(plan, &src, &dst, op->n, hooks);
    }
    if (op->layout->dense && !hooks->takes)
        return add_dense(plan, op);
    for (int b = 0; b < op->layout->nboxes; b++) {
        const int status = add_box(plan, op, &op->layout->boxes[b], hooks);
        if (status != TEMPI_OK)
            return status;
    }
    return tempi_plan_take_copy(plan, before, is_for_kernels(op));
}

/* ---- launches -------------------------------------------------------------------------------- */

/* Gives large transposes, and a single piece, their own launches; removes them from the list. */
static int launch_alone(tempi_plan *plan, int multiprocessors)
{
    tempi_plan_room *room = plan->room;
    const bool single = room->npieces == 1;
    int remaining = 0;
    for (int i = 0; i < room->npieces; i++) {
        const tempi_piece *piece = &room->pieces[i];
        tempi_launch made;
        const bool large = single || piece->end - piece->first >= OWN_LAUNCH_BYTES;
        if ((large && tempi_piece_transpose(piece, multiprocessors, &made)) ||
            (single && tempi_piece_launch(piece, multiprocessors, &made))) {
            tempi_launch *launch = tempi_plan_add_launch(plan);
            if (!launch)
                return TEMPI_ERR_MEMORY;
            *launch = made;
        } else {
            room->pieces[remaining++] = *piece;
        }
    }
    room->npieces = remaining;
    return TEMPI_OK;
}

/* Makes pieces of the copies that a kernel can do. */
static int fuse_copies(tempi_plan *plan)
{
    int remaining = 0, status = TEMPI_OK;
    for (int i = 0; i < plan->ncopies && status == TEMPI_OK; i++) {
        const tempi_device_copy *copy = &plan->copies[i];
        const tempi_piece piece = {.dst = copy->dst,
                                   .src = copy->src,
                                   .run = copy->n,
                                   .end = copy->n,
                                   .table_axis = TEMPI_NO_AXIS};
        if (copy->by_kernel)
            status = split(plan, &piece);
        else
            plan->copies[remaining++] = *copy;
    }
    plan->ncopies = remaining;
    return status;
}

/* Whether it is a matrix of few rows, as the driver copies them. */
static bool has_few_rows(const tempi_piece *piece, int64_t most)
{
    const tempi_piece_axis *rows = &piece->axes[0];
    return piece->table_axis == TEMPI_NO_AXIS && piece->naxes == 1 && rows->n <= most &&
           piece->first == 0 && piece->end == tempi_piece_size(piece) && rows->d >= piece->run &&
           rows->s >= piece->run && rows->d <= INT32_MAX && rows->s <= INT32_MAX;
}

static int copy_rows(tempi_plan *plan)
{
    const tempi_piece *piece = &plan->room->pieces[0];
    plan->room->npieces = 0;
    return push_copy(plan, &(tempi_device_copy){.dst = piece->dst,
                                                .src = piece->src,
                                                .n = piece->run,
                                                .rows = piece->axes[0].n,
                                                .dst_pitch = piece->axes[0].d,
                                                .src_pitch = piece->axes[0].s});
}

int tempi_plan_finish(tempi_plan *plan, const tempi_plan_hooks *hooks)
{
    tempi_plan_room *room = plan->room;
    const int multiprocessors = hooks->multiprocessors;
    if (room->npieces == 1 && plan->ncopies == 0 &&
        has_few_rows(&room->pieces[0], hooks->copied_rows))
        return copy_rows(plan);
    const bool fuses = room->npieces > 0 || (hooks->kernels && plan->ncopies > COPIES_MOST);
    int left, status = fuses ? fuse_copies(plan) : TEMPI_OK;
    if (status != TEMPI_OK)
        return status;
    do { /* after removals a single piece may be left */
        left = room->npieces;
        status = launch_alone(plan, multiprocessors);
    } while (status == TEMPI_OK && room->npieces < left && room->npieces == 1);
    return status == TEMPI_OK && room->npieces > 0 ? tempi_plan_boxes(plan, multiprocessors)
                                                   : status;
}

int tempi_cuda_plan(const tempi_op *ops, int n, const tempi_plan_hooks *hooks, tempi_plan *plan)
{
    if (!tempi_plan_reset(plan))
        return TEMPI_ERR_MEMORY;
    int status = TEMPI_OK;
    for (int i = 0; i < n && status == TEMPI_OK; i++)
        status = add_op(plan, &ops[i], hooks);
    if (status == TEMPI_OK)
        status = tempi_plan_finish(plan, hooks);
    if (status != TEMPI_OK)
        tempi_plan_reset(plan);
    return status;
}

int tempi_cuda_plan_take(tempi_plan *plan, const tempi_launch *launches, int n)
{
    if (!tempi_plan_reset(plan))
        return TEMPI_ERR_MEMORY;
    for (int i = 0; i < n; i++) {
        tempi_launch *launch = tempi_plan_add_launch(plan);
        if (!launch)
            return TEMPI_ERR_MEMORY;
        *launch = launches[i];
    }
    return TEMPI_OK;
}

void tempi_cuda_plan_patch(tempi_plan *plan, uint64_t address)
{
    for (int i = 0; i < plan->npatches; i++)
        plan->launches[plan->patches[i].launch].params[plan->patches[i].param] += address;
}
