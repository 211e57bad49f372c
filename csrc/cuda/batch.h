/* cuda/batch.h: a batch of work for one device in one direction, from gathering to completion.
 *
 *   OPEN       gathers operations (device->open)
 *   LAUNCHING  one thread enqueues it into the stream; for the others it is not done
 *   FLYING     its stream will raise its flag, or reach its event
 *   COPYING    for a while, if it has pageable memory: one thread copies pieces (pageable.h)
 *   ENDING     one thread returns its buffers
 *   DONE       `status` is the result
 *
 * Reference-counted: each ticket holds a reference, and so do the device's lists. */
#ifndef TEMPI_CUDA_BATCH_H
#define TEMPI_CUDA_BATCH_H

#include "cuda/device.h"
#include "cuda/plan.h"
#include "pack/pack.h"

typedef enum tempi_batch_state {
    TEMPI_BATCH_OPEN,
    TEMPI_BATCH_LAUNCHING,
    TEMPI_BATCH_FLYING,
    TEMPI_BATCH_COPYING,
    TEMPI_BATCH_ENDING,
    TEMPI_BATCH_DONE
} tempi_batch_state;

/* One prepared operation: the memory that it needs is allocated. */
typedef struct tempi_cuda_item {
    tempi_op op; /* op.packed: the kernel's side, in `buffer` if there is one */
    void *host;  /* staged and pipelined: the packed bytes in host memory; else NULL */
    void
        *buffer; /* intermediate buffer from the pool, on the device; pageable: pinned; else NULL */
    int64_t piece; /* pipelined and pageable: bytes a piece; else 0 */
    int slots;     /* pieces that the buffer holds */
    bool pageable; /* `host` is pageable memory (pageable.h) */
} tempi_cuda_item;

struct tempi_cuda_batch {
    tempi_cuda_device *device;
    int direction;
    _Atomic int refs;
    _Atomic int state;
    int status;
    tempi_cuda_stream stream; /* in which it runs */
    int flag;                 /* how it is known to be done (completion.h), or: */
    tempi_cuda_event event;
    bool flag_wanted;      /* by what waits for it */
    bool flag_last;        /* the last kernel of a plan shall write the flag */
    bool in_program_order; /* it takes a place in the program's stream (api/streams.c) */
    unsigned polls;        /* of the flag */
    bool over_bus;         /* all of its kernels access pinned memory */
    int64_t copied_rows;   /* row_copies.h; negative: the device's */
    int resident;          /* its block of descriptors (resident.h); -1: none */
    tempi_cuda_item *items;
    int nitems, items_room;
    void **buffers; /* from the pool, returned at the end */
    int nbuffers, buffers_room;
    tempi_plan plan;
    bool has_pageable;
    struct tempi_cuda_pageable *pageable; /* its progress; NULL: not launched, or done */
};

/* An empty batch with one reference; NULL: out of memory. */
tempi_cuda_batch *tempi_cuda_batch_new(tempi_cuda_device *device, int direction);
tempi_cuda_batch *tempi_cuda_batch_retain(tempi_cuda_batch *batch);
void tempi_cuda_batch_release(tempi_cuda_batch *batch);

static inline int tempi_cuda_batch_state(tempi_cuda_batch *batch)
{
    return atomic_load_explicit(&batch->state, memory_order_acquire);
}

/* Reserves room for that many items, so that the next adds cannot fail. */
bool tempi_cuda_batch_reserve(tempi_cuda_batch *batch, int items);
/* The batch owns the item's buffer from now on. */
void tempi_cuda_batch_add(tempi_cuda_batch *batch, const tempi_cuda_item *item);
/* Another buffer for the life of the batch, in device memory or pinned; NULL: none available. */
void *tempi_cuda_batch_buffer(tempi_cuda_batch *batch, int64_t bytes);
void *tempi_cuda_batch_pinned(tempi_cuda_batch *batch, int64_t bytes);

/* Plans operations, for tempi_cuda_batch_repeat; the caller uploads the plan's descriptors. */
int tempi_cuda_batch_plan(tempi_cuda_batch *batch, const tempi_op *ops, int n);
/* Returns its flag, which nothing will write. */
void tempi_cuda_batch_unflag(tempi_cuda_batch *batch);
/* Repeats the launches and copies of the last enqueue's plan. Not for staged items. */
int tempi_cuda_batch_repeat(tempi_cuda_batch *batch);
/* LAUNCHING -> FLYING or, if it failed, DONE. */
void tempi_cuda_batch_launch(tempi_cuda_batch *batch);
/* LAUNCHING -> FLYING after the work in its stream; `status`: of enqueueing it. */
void tempi_cuda_batch_fly(tempi_cuda_batch *batch, int status);
/* 1 when DONE. Never blocks. */
int tempi_cuda_batch_poll(tempi_cuda_batch *batch);
/* Returns when DONE; must not be called for an OPEN batch. */
void tempi_cuda_batch_wait(tempi_cuda_batch *batch);

/* op.stream of an item whose wait for the program's stream is in tempi's stream already, or of an
 * operation that waits for none. */
#define TEMPI_CUDA_ORDERED UINTPTR_MAX
/* Sets batch->stream by the items' streams; it comes after their work (batch_stream.c). `own`: one
 * of tempi's. The caller has entered the device. */
int tempi_cuda_batch_choose_stream(tempi_cuda_batch *batch, bool own);
/* Enqueues the batch's items into its stream (launch.c). The caller has entered the device. */
int tempi_cuda_batch_enqueue(tempi_cuda_batch *batch);
/* Enqueues a strided copy (plan.h: tempi_cuda_plan_strided). TEMPI_ERR_UNSUPPORTED: no such plan,
 * and nothing was enqueued. */
int tempi_cuda_batch_move(tempi_cuda_batch *batch, const tempi_side *src, const tempi_side *dst,
                          int64_t n);

/* Whether an operation with `into` has a plan, with kernels and tables (launch.c). */
int tempi_cuda_move_plans(tempi_cuda_device *device, const tempi_op *op);
/* Prepares the operation: its buffers, kernels and tables (prepare.c). */
int tempi_cuda_item_prepare(const tempi_op *op, tempi_cuda_item *out);
/* Counts the item as handled by a device. */
void tempi_cuda_item_note(const tempi_cuda_item *item);

/* Work of the back end with just that batch, whose reference it takes over; NULL: out of memory. */
tempi_work *tempi_cuda_work_of(tempi_cuda_batch *batch);

#endif
