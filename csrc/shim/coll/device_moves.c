#include "shim/coll/device_moves.h"
#include "base/stats.h"
#include "cuda/batch.h"
#include "cuda/ipc.h"
#include "datatype/layout.h"

#include <stdlib.h>

static bool plans(const tempi_op *from, const tempi_op *to)
{
    tempi_op op = *from;
    tempi_cuda_device *device = tempi_cuda_device_get(to->device);
    op.into = to;
    return device && tempi_cuda_move_plans(device, &op) == TEMPI_OK;
}

bool tempi_device_moves_add(tempi_device_moves *moves, const tempi_device_move *move)
{
    if (!plans(&move->from, &move->to))
        return false;
    if (moves->n == moves->room) {
        const int room = moves->room > 0 ? 2 * moves->room : 32;
        void *more = realloc(moves->move, (size_t)room * sizeof *moves->move);
        if (!more)
            return false;
        moves->move = more;
        moves->room = room;
    }
    moves->move[moves->n++] = *move;
    tempi_layout_retain(move->from.layout);
    tempi_layout_retain(move->to.layout);
    return true;
}

/* Both were moved, or will be. */
static void take_out(const tempi_blocks *side, tempi_op *op)
{
    if (side->outlives)
        tempi_layout_release(op->layout);
    *op = (tempi_op){.direction = op->direction, .method = TEMPI_METHOD_HOST};
}

static bool fits(const tempi_op *from, const tempi_op *to)
{
    return tempi_block_is_resident(from) && tempi_block_is_resident(to) &&
           from->device == to->device && from->n <= to->n;
}

void tempi_device_moves_add_own(tempi_device_moves *moves, int own, const tempi_blocks *out,
                                const tempi_blocks *in)
{
    const int nout = tempi_edges_count(out->edges, own), nin = tempi_edges_count(in->edges, own);
    for (int i = 0; i < nout && i < nin; ++i) {
        tempi_op *from = &out->ops[out->edges->first[own] + i],
                 *to = &in->ops[in->edges->first[own] + i];
        const tempi_device_move move = {
            .from = *from, .to = *to, .sender = &in->ops[in->edges->first[own]], .pin = -1};
        if (!fits(from, to) || !tempi_device_moves_add(moves, &move))
            continue;
        take_out(out, from);
        take_out(in, to);
    }
}

void tempi_device_moves_drop(tempi_device_moves *moves, int first)
{
    while (moves->n > first) {
        const tempi_device_move *move = &moves->move[--moves->n];
        tempi_layout_release(move->from.layout);
        tempi_layout_release(move->to.layout);
        if (move->pin >= 0)
            tempi_ipc_close(move->pin);
    }
}

/* The first move after those of that one's sender, which it follows. */
static int after_sender(const tempi_device_moves *moves, int i)
{
    const tempi_op *sender = moves->move[i].sender;
    while (i < moves->n && moves->move[i].sender == sender)
        ++i;
    return i;
}

/* Links the senders in their order; returns the first move of the first one. */
static int order_senders(tempi_device_moves *moves)
{
    tempi_device_move *move = moves->move;
    int first = -1, last = -1; /* last: inserted */
    for (int i = 0; i < moves->n; i = after_sender(moves, i)) {
        const bool follows = last >= 0 && move[last].sender < move[i].sender;
        int *link = follows ? &move[last].next : &first;
        while (*link >= 0 && move[*link].sender < move[i].sender)
            link = &move[*link].next;
        move[i].next = *link;
        *link = last = i;
    }
    return first;
}

/* Fills ops with the moves in the order of their senders. */
static void list_ops(tempi_device_moves *moves, bool ordered, tempi_op *ops)
{
    for (int first = order_senders(moves); first >= 0; first = moves->move[first].next) {
        const int after = after_sender(moves, first);
        for (int i = first; i < after; ++i, ++ops) {
            *ops = moves->move[i].from;
            ops->into = &moves->move[i].to;
            if (ordered)
                ops->stream = TEMPI_CUDA_ORDERED;
        }
    }
}

static bool run(tempi_device_moves *moves, bool ordered)
{
    const int n = moves->n;
    if (n <= 0)
        return true;
    tempi_op few[32], *ops = n > 32 ? malloc((size_t)n * sizeof *ops) : few;
    if (!ops)
        return false;
    list_ops(moves, ordered, ops);
    const bool good = (ordered || tempi_cuda_settle(TEMPI_UNPACK) == TEMPI_OK) &&
                      tempi_pack_run(ops, n) == TEMPI_OK;
    if (ops != few)
        free(ops);
    return good;
}

static void note(const tempi_device_moves *moves)
{
    for (int i = 0; i < moves->n; ++i) {
        const tempi_device_move *move = &moves->move[i];
        tempi_stat_add(move->pin < 0 ? TEMPI_STAT_self_moves : TEMPI_STAT_peer_moves, 1);
        if (move->pin >= 0)
            tempi_stat_add(TEMPI_STAT_peer_moved_bytes, move->from.n);
    }
}

bool tempi_device_moves_run(tempi_device_moves *moves, bool ordered)
{
    const bool good = run(moves, ordered);
    if (good)
        note(moves);
    tempi_device_moves_drop(moves, 0);
    return good;
}

void tempi_device_moves_close(tempi_device_moves *moves)
{
    tempi_device_moves_drop(moves, 0);
    free(moves->move);
    *moves = (tempi_device_moves){0};
}
