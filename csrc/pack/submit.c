/* submit.c: packing as submitted work. The host back end works inside submit; the delayed one is the
 * host's with its work put off, so that what waits for packs can be tested without a device. */
#include "pack/pack.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static void run_ops(const tempi_op *ops, int n)
{
    for (int i = 0; i < n; i++) {
        const tempi_op *op = &ops[i];
        if (op->direction == TEMPI_PACK)
            tempi_pack(op->layout, op->count, op->mem, op->first, op->n, op->packed);
        else
            tempi_unpack(op->layout, op->count, op->packed, op->first, op->n, op->mem);
    }
}

/* ---- host --------------------------------------------------------------------------------------- */

static int host_submit(const tempi_op *ops, int n, tempi_work **out)
{
    run_ops(ops, n);
    *out = NULL;
    return TEMPI_OK;
}

static int host_test(tempi_work *work)
{
    (void)work;
    return 1;
}

static void host_wait(tempi_work *work)
{
    (void)work;
}

static const tempi_backend host_backend = {"host", host_submit, host_test, host_wait};

/* ---- delayed ------------------------------------------------------------------------------------ */

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

static void delayed_wait(tempi_work *work)
{
    run_ops(work->ops, work->n);
    free(work);
}

static int delayed_test(tempi_work *work)
{
    if (--work->tests_left > 0)
        return 0;
    delayed_wait(work);
    return 1;
}

static const tempi_backend delayed_backend = {"delayed", delayed_submit, delayed_test,
                                              delayed_wait};

void tempi_pack_set_delay(int64_t tests)
{
    atomic_store_explicit(&delay_tests, tests, memory_order_relaxed);
}

/* ---- tickets ------------------------------------------------------------------------------------ */

int tempi_pack_submit(const tempi_op *ops, int n, tempi_ticket *out)
{
    const int delayed = atomic_load_explicit(&delay_tests, memory_order_relaxed) > 0;
    const tempi_backend *backend = delayed ? &delayed_backend : &host_backend;
    tempi_work *work;
    const int status = backend->submit(ops, n, &work);
    if (status == TEMPI_OK)
        *out = (tempi_ticket){backend, work};
    return status;
}

int tempi_pack_test(tempi_ticket *ticket)
{
    if (!ticket->work)
        return 1;
    if (!ticket->backend->test(ticket->work))
        return 0;
    ticket->work = NULL;
    return 1;
}

void tempi_pack_wait(tempi_ticket *ticket)
{
    if (!ticket->work)
        return;
    ticket->backend->wait(ticket->work);
    ticket->work = NULL;
}

void tempi_pack_run(const tempi_op *ops, int n)
{
    tempi_ticket ticket;
    if (atomic_load_explicit(&delay_tests, memory_order_relaxed) == 0)
        run_ops(ops, n);
    else if (tempi_pack_submit(ops, n, &ticket) == TEMPI_OK)
        tempi_pack_wait(&ticket);
    else
        run_ops(ops, n);
}
