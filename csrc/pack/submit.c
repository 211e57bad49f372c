/* submit.c: packing as submitted work. The host back end works inside submit. The delayed back end
 * defers the host's work, so that code that waits for packs can be tested without a device. Device
 * code registers a back end for operations that are not for the host. */
#include "pack/pack.h"
#include "pack/parts.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static inline __attribute__((always_inline)) void run_op(const tempi_op *op)
{
    if (op->direction == TEMPI_PACK && op->streamed)
        tempi_pack_nontemporal(op->layout, op->count, op->mem, op->first, op->n, op->packed);
    else if (op->direction == TEMPI_PACK)
        tempi_pack(op->layout, op->count, op->mem, op->first, op->n, op->packed);
    else
        tempi_unpack(op->layout, op->count, op->packed, op->first, op->n, op->mem);
}

static void run_ops(const tempi_op *ops, int n)
{
    for (int i = 0; i < n; i++)
        if (ops[i].method == TEMPI_METHOD_HOST)
            run_op(&ops[i]);
}

/* ---- host ------------------------------------------------------------------------------------ */

static int host_submit(const tempi_op *ops, int n, tempi_work **out)
{
    run_ops(ops, n);
    *out = NULL;
    return TEMPI_OK;
}

static int host_test(tempi_work *work, int *status)
{
    (void)work;
    *status = TEMPI_OK;
    return 1;
}

static int host_wait(tempi_work *work)
{
    (void)work;
    return TEMPI_OK;
}

static const tempi_backend host_backend = {"host", host_submit, host_test, host_wait};

/* ---- delayed --------------------------------------------------------------------------------- */

struct tempi_work {
    int64_t tests_left;
    int n;
    tempi_op ops[];
};

static _Atomic int64_t delay_tests;

static int delayed_submit(const tempi_op *ops, int n, tempi_work **out)
{
    const size_t bytes = (size_t)n * sizeof *ops;
    tempi_work *work = malloc(sizeof *work + bytes);
    if (!work)
        return TEMPI_ERR_MEMORY;
    work->tests_left = atomic_load_explicit(&delay_tests, memory_order_relaxed);
    work->n = n;
    memcpy(work->ops, ops, bytes);
    *out = work;
    return TEMPI_OK;
}

static int delayed_wait(tempi_work *work)
{
    run_ops(work->ops, work->n);
    free(work);
    return TEMPI_OK;
}

static int delayed_test(tempi_work *work, int *status)
{
    if (--work->tests_left > 0)
        return 0;
    *status = delayed_wait(work);
    return 1;
}

static const tempi_backend delayed_backend = {"delayed", delayed_submit, delayed_test,
                                              delayed_wait};

void tempi_pack_set_delay(int64_t tests)
{
    atomic_store_explicit(&delay_tests, tests, memory_order_relaxed);
}

/* ---- tickets --------------------------------------------------------------------------------- */

static const tempi_backend *_Atomic device_backend;

void tempi_pack_set_device_backend(const tempi_backend *backend)
{
    atomic_store_explicit(&device_backend, backend, memory_order_release);
}

static int for_host(const tempi_op *ops, int n)
{
    for (int i = 0; i < n; i++)
        if (ops[i].method != TEMPI_METHOD_HOST)
            return 0;
    return 1;
}

/* The device takes its operations and skips the host's, which run here if its submit succeeded. */
static int device_submit(const tempi_op *ops, int n, tempi_ticket *out)
{
    const tempi_backend *backend = atomic_load_explicit(&device_backend, memory_order_acquire);
    tempi_work *work;
    if (!backend)
        return TEMPI_ERR_UNSUPPORTED;
    const int status = backend->submit(ops, n, &work);
    if (status != TEMPI_OK)
        return status;
    run_ops(ops, n);
    *out = (tempi_ticket){backend, work, TEMPI_OK};
    return TEMPI_OK;
}

/* A back end sees the parts of mixed operations, and copies what it needs from the list. */
static int mixed_submit(const tempi_op *ops, int n, int all, tempi_ticket *out)
{
    tempi_op *list = malloc((size_t)all * sizeof *list);
    if (!list)
        return TEMPI_ERR_MEMORY;
    tempi_parts_expand(ops, n, list);
    const int status = tempi_pack_submit(list, all, out);
    free(list);
    return status;
}

static int is_mixed(const tempi_op *ops, int n)
{
    for (int i = 0; i < n; i++)
        if (ops[i].method == TEMPI_METHOD_MIXED)
            return 1;
    return 0;
}

int tempi_pack_submit(const tempi_op *ops, int n, tempi_ticket *out)
{
    if (!for_host(ops, n))
        return is_mixed(ops, n) ? mixed_submit(ops, n, tempi_parts_count(ops, n), out)
                                : device_submit(ops, n, out);
    const int delayed = atomic_load_explicit(&delay_tests, memory_order_relaxed) > 0;
    const tempi_backend *backend = delayed ? &delayed_backend : &host_backend;
    tempi_work *work;
    const int status = backend->submit(ops, n, &work);
    if (status == TEMPI_OK)
        *out = (tempi_ticket){backend, work, TEMPI_OK};
    return status;
}

int tempi_pack_test(tempi_ticket *ticket)
{
    if (!ticket->work)
        return 1;
    if (!ticket->backend->test(ticket->work, &ticket->status))
        return 0;
    ticket->work = NULL;
    return 1;
}

void tempi_pack_wait(tempi_ticket *ticket)
{
    if (!ticket->work)
        return;
    ticket->status = ticket->backend->wait(ticket->work);
    ticket->work = NULL;
}

int tempi_pack_error(const tempi_ticket *ticket)
{
    return ticket->status;
}

int tempi_pack_run(const tempi_op *ops, int n)
{
    tempi_ticket ticket;
    const int delayed = atomic_load_explicit(&delay_tests, memory_order_relaxed) > 0;
    if (n == 1 && ops->method == TEMPI_METHOD_HOST && !delayed) { /* most calls, and the shortest */
        run_op(ops);
        return TEMPI_OK;
    }
    const int host = for_host(ops, n);
    if (host && !delayed) {
        run_ops(ops, n);
        return TEMPI_OK;
    }
    const int status = tempi_pack_submit(ops, n, &ticket);
    if (status == TEMPI_OK) {
        tempi_pack_wait(&ticket);
        return tempi_pack_error(&ticket);
    }
    if (!host)
        return status;
    run_ops(ops, n);
    return TEMPI_OK;
}
