/* pageable.c: a pipeline between kernels and pageable memory.
 *
 *   pack     1. a kernel packs piece k into slot k % SLOTS of pinned memory, and marks it
 *            2. the host copies it from there while the next ones are packed
 *   unpack   1. the host copies piece k into its slot
 *            2. a kernel unpacks it from there, and marks it, while the next ones are copied
 *
 * The host's part is done by the thread that tests or waits for the batch. For each piece the
 * driver is called to launch or copy, to write the mark of a copy, to upload descriptors if there
 * are any, and twice to enter the device (once for all pieces that start together). */
#include "cuda/pageable.h"
#include "base/copy_bytes.h"
#include "base/stats.h"
#include "cuda/completion.h"
#include "cuda/pool.h"
#include "pack/parts.h"

#include <stdlib.h>
#include <string.h>

enum {
    SLOTS = 4,
    LEAST = 512 << 10, /* shorter ones are copied by the driver */
    SHORTEST = 64 << 10,
    LONGEST = TEMPI_PIECE,
    SHARE = 16, /* of a message */
    PAGE = 4096,
    POLLS_A_QUERY = 64
};

/* How a piece is known to be done on the device. */
typedef struct mark {
    int flag; /* completion.h, or: */
    tempi_cuda_event event;
} mark;

typedef struct cursor {
    int item;
    int64_t at; /* bytes of the item before it */
} cursor;

/* Pinned and device memory for the descriptors of a slot's launches. */
typedef struct descriptors {
    void *pinned, *device;
    size_t room;
} descriptors;

struct tempi_cuda_pageable {
    int64_t started, finished; /* pieces; at most SLOTS are between */
    cursor next, oldest;
    mark marks[SLOTS];
    descriptors of[SLOTS];
    unsigned polls;
};

/* ---- memory ---------------------------------------------------------------------------------- */

bool tempi_cuda_is_pageable(const tempi_op *op)
{
    return op->pageable && op->n >= LEAST;
}

static int64_t piece_of(int64_t n)
{
    const int64_t share = (n / SHARE + PAGE - 1) / PAGE * PAGE;
    return share < SHORTEST ? SHORTEST : share < LONGEST ? share : LONGEST;
}

bool tempi_cuda_pageable_prepare(tempi_cuda_item *item)
{
    const int64_t piece = piece_of(item->op.n);
    item->buffer = tempi_cuda_pinned_some(item->op.device, SLOTS * piece);
    if (!item->buffer)
        return false;
    item->host = item->op.packed;
    item->piece = piece;
    item->slots = SLOTS;
    item->pageable = true;
    item->op.method = TEMPI_METHOD_ONE_SHOT; /* of its kernels */
    return true;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static void skip_others(const tempi_cuda_batch *batch, cursor *c)
{
    while (c->item < batch->nitems && !batch->items[c->item].pageable)
        ++c->item;
}

static void step(const tempi_cuda_batch *batch, cursor *c)
{
    const tempi_cuda_item *item = &batch->items[c->item];
    c->at += item->piece;
    if (c->at >= item->op.n) {
        *c = (cursor){.item = c->item + 1};
        skip_others(batch, c);
    }
}

static tempi_op piece_at(const tempi_cuda_batch *batch, const cursor *c)
{
    const tempi_cuda_item *item = &batch->items[c->item];
    const int64_t left = item->op.n - c->at;
    tempi_op op = item->op;
    op.first += c->at;
    op.n = left < item->piece ? left : item->piece;
    op.packed = (char *)item->buffer + c->at / item->piece % SLOTS * item->piece;
    return op;
}

/* A copy between a piece's slot and the pageable memory, of the bytes that the layout covers. */
typedef struct transfer {
    char *slot, *host; /* of packed byte `first` */
    int64_t first;
    bool packs;
} transfer;

static int transfer_segment(void *context, int64_t first, int64_t n)
{
    const transfer *t = context;
    char *slot = t->slot + (first - t->first), *host = t->host + (first - t->first);
    tempi_copy_bytes(t->packs ? host : slot, t->packs ? slot : host, (size_t)n);
    return TEMPI_OK;
}

static void transfer_piece(const tempi_cuda_batch *batch, const cursor *c)
{
    const tempi_op op = piece_at(batch, c);
    transfer t = {.slot = op.packed,
                  .host = (char *)batch->items[c->item].host + c->at,
                  .first = op.first,
                  .packs = batch->direction == TEMPI_PACK};
    if (op.partial)
        (void)tempi_segments_visit(op.layout, op.first, op.n, transfer_segment, &t);
    else
        (void)transfer_segment(&t, op.first, op.n);
}

/* ---- launches -------------------------------------------------------------------------------- */

static void descriptors_free(descriptors *d)
{
    (void)tempi_cuda_pool_put(d->pinned);
    (void)tempi_cuda_pool_put(d->device);
    *d = (descriptors){NULL, NULL, 0};
}

/* The slot's last user is done. Without device memory kernels read the pinned ones. */
static int upload_descriptors(tempi_cuda_batch *batch, descriptors *d)
{
    const tempi_plan *plan = &batch->plan;
    const int slot = batch->device->slot;
    if (plan->nbytes > d->room) {
        descriptors_free(d);
        d->pinned = tempi_cuda_pinned_some(slot, (int64_t)plan->nbytes);
        d->device = d->pinned ? tempi_cuda_buffer_get(slot, (int64_t)plan->nbytes) : NULL;
        d->room = d->pinned ? plan->nbytes : 0;
    }
    if (!d->pinned)
        return TEMPI_ERR_MEMORY;
    memcpy(d->pinned, plan->bytes, plan->nbytes);
    tempi_cuda_plan_patch(&batch->plan, (uintptr_t)(d->device ? d->device : d->pinned));
    return d->device ? TEMPI_CU(MemcpyAsync, (uintptr_t)d->device, (uintptr_t)d->pinned,
                                plan->nbytes, batch->stream)
                     : TEMPI_OK;
}

static int mark_end(tempi_cuda_batch *batch, mark *m)
{
    *m = (mark){.flag = tempi_cuda_flag_raise(batch->device, batch->stream)};
    if (m->flag != TEMPI_CUDA_NO_FLAG)
        return TEMPI_OK;
    const int status = tempi_cuda_event_get(batch->device, &m->event);
    return status == TEMPI_OK ? TEMPI_CU(EventRecord, m->event, batch->stream) : status;
}

static void mark_free(tempi_cuda_batch *batch, mark *m)
{
    if (m->flag != TEMPI_CUDA_NO_FLAG)
        tempi_cuda_flag_put(batch->device, m->flag);
    tempi_cuda_event_put(batch->device, m->event);
    *m = (mark){.flag = TEMPI_CUDA_NO_FLAG};
}

static int enqueue_piece(tempi_cuda_batch *batch, int which)
{
    struct tempi_cuda_pageable *p = batch->pageable;
    const tempi_op op = piece_at(batch, &p->next);
    int status = tempi_cuda_batch_plan(batch, &op, 1);
    if (status == TEMPI_OK && batch->plan.nbytes > 0)
        status = upload_descriptors(batch, &p->of[which]);
    if (status == TEMPI_OK)
        status = tempi_cuda_batch_repeat(batch);
    return status == TEMPI_OK ? mark_end(batch, &p->marks[which]) : status;
}

/* To enqueue a piece again is harmless: a failure is retried once, unless the device is lost. */
static int start_piece(tempi_cuda_batch *batch)
{
    struct tempi_cuda_pageable *p = batch->pageable;
    const int which = (int)(p->started++ % SLOTS);
    if (batch->direction == TEMPI_UNPACK)
        transfer_piece(batch, &p->next);
    int status = enqueue_piece(batch, which);
    if (status != TEMPI_OK && tempi_cuda_up()) {
        tempi_stat_add(TEMPI_STAT_cuda_repeated, 1);
        mark_free(batch, &p->marks[which]);
        status = enqueue_piece(batch, which);
    }
    step(batch, &p->next);
    tempi_stat_add(TEMPI_STAT_pageable_pieces, 1);
    return status;
}

static bool can_start(const tempi_cuda_batch *batch)
{
    const struct tempi_cuda_pageable *p = batch->pageable;
    return p->next.item < batch->nitems && p->started - p->finished < SLOTS;
}

static int start_pieces(tempi_cuda_batch *batch)
{
    int status = TEMPI_OK;
    while (can_start(batch) && status == TEMPI_OK)
        status = start_piece(batch);
    return status;
}

int tempi_cuda_pageable_start(tempi_cuda_batch *batch)
{
    if (!batch->has_pageable)
        return TEMPI_OK;
    tempi_cuda_pageable_end(batch);
    struct tempi_cuda_pageable *p = calloc(1, sizeof *p);
    if (!p)
        return TEMPI_ERR_MEMORY;
    for (int i = 0; i < SLOTS; ++i)
        p->marks[i].flag = TEMPI_CUDA_NO_FLAG;
    skip_others(batch, &p->next);
    p->oldest = p->next;
    batch->pageable = p;
    return start_pieces(batch);
}

/* ---- progress -------------------------------------------------------------------------------- */

/* A kernel that failed never marks its piece, so the stream is queried now and then; if it is idle,
 * all pieces are done. */
static int ask_driver(tempi_cuda_batch *batch, const mark *m, bool *ready)
{
    tempi_cuda_entry entry;
    const int status = tempi_cuda_enter_relaxed(batch->device, &entry);
    if (status != TEMPI_OK)
        return status;
    const int result = m->event ? tempi_cu.EventQuery(m->event)
                                : tempi_cu.StreamQuery(batch->stream);
    tempi_cuda_leave(&entry);
    *ready = result == TEMPI_CUDA_SUCCESS;
    return result == TEMPI_CUDA_NOT_READY ? TEMPI_OK : tempi_cuda_check(result, "cuStreamQuery");
}

static int is_ready(tempi_cuda_batch *batch, bool *ready)
{
    struct tempi_cuda_pageable *p = batch->pageable;
    const mark *m = &p->marks[p->finished % SLOTS];
    const bool flag = m->flag != TEMPI_CUDA_NO_FLAG;
    *ready = flag && tempi_cuda_flag_is_up(batch->device, m->flag);
    if (*ready || (flag && ++p->polls % POLLS_A_QUERY != 0))
        return TEMPI_OK;
    return ask_driver(batch, m, ready);
}

static void finish_piece(tempi_cuda_batch *batch)
{
    struct tempi_cuda_pageable *p = batch->pageable;
    if (batch->direction == TEMPI_PACK)
        transfer_piece(batch, &p->oldest);
    mark_free(batch, &p->marks[p->finished % SLOTS]);
    ++p->finished;
    step(batch, &p->oldest);
}

static int start_more(tempi_cuda_batch *batch)
{
    tempi_cuda_entry entry;
    if (!can_start(batch))
        return TEMPI_OK;
    int status = tempi_cuda_enter(batch->device, &entry);
    if (status != TEMPI_OK)
        return status;
    status = start_pieces(batch);
    tempi_cuda_leave(&entry);
    return status;
}

int tempi_cuda_pageable_advance(tempi_cuda_batch *batch, bool *done)
{
    struct tempi_cuda_pageable *p = batch->pageable;
    int status = TEMPI_OK;
    bool ready = true;
    while (p->finished < p->started && status == TEMPI_OK) {
        status = is_ready(batch, &ready);
        if (status != TEMPI_OK || !ready)
            break;
        finish_piece(batch);
        status = start_more(batch);
    }
    *done = p->finished == p->started;
    return status;
}

void tempi_cuda_pageable_await(tempi_cuda_batch *batch)
{
    tempi_cuda_entry entry;
    struct tempi_cuda_pageable *p = batch->pageable;
    const mark *m = &p->marks[p->finished % SLOTS];
    if (m->flag != TEMPI_CUDA_NO_FLAG) {
        tempi_cuda_flag_spin(batch->device, m->flag);
        p->polls = POLLS_A_QUERY - 1; /* the next poll queries */
    } else if (tempi_cuda_enter_relaxed(batch->device, &entry) == TEMPI_OK) {
        (void)TEMPI_CU(EventSynchronize, m->event);
        tempi_cuda_leave(&entry);
    }
}

void tempi_cuda_pageable_end(tempi_cuda_batch *batch)
{
    struct tempi_cuda_pageable *p = batch->pageable;
    for (int i = 0; p && i < SLOTS; ++i) {
        mark_free(batch, &p->marks[i]);
        descriptors_free(&p->of[i]);
    }
    free(p);
    batch->pageable = NULL;
}
