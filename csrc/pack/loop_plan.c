/* loop_plan.c: from a nest to kernel calls.
 *
 * 1. Dims become axes: source and destination strides instead of memory and packed ones.
 * 2. Axes fold: an inner axis that continues the run joins it; an outer one that continues the
 *    inner one joins that.
 * 3. Axes are ordered for the caches (axis_order.c).
 * 4. The three innermost axes go to one kernel, chosen once; the others are loops around it.
 *
 * For a small message these steps take longer than the copy, so the plan of one element is cached
 * with its layout. */
#include "pack/axis_order.h"
#include "pack/kernel_trials.h"
#include "pack/nest.h"

#include <stddef.h>
#include <stdlib.h>

/* A nest's dims, one that is cut in two for blocks, and padding for a kernel's three. */
enum { MAX_AXES = TEMPI_MAX_DIMS + 1 + 1 + 3 };

/* Loops around one kernel. The axes are innermost first: three for the kernel, then the outer ones.
 * Plans are used in place: copying one costs more than a small pack. */
typedef struct loop_plan {
    tempi_loop_fn kernel;
    tempi_tuned *tuned; /* NULL: the kernel has no candidates */
    tempi_loop loop;
    int naxes;       /* at least 3 */
    tempi_axis rest; /* of the innermost axis, after its last whole block; n == 0: none */
    tempi_axis axes[MAX_AXES];
} loop_plan;

/* Adds one dim around axes[0..n). A dim that continues the run joins it, if there is a run; one
 * that continues the last axis joins that. Returns the new n. */
static inline int fold_dim(tempi_axis *axes, int n, const tempi_dim *dim, int direction,
                           int64_t *run)
{
    const int64_t count = dim->count;
    if (count == 1)
        return n;
    if (n == 0 && dim->stride == *run && dim->packed_stride == *run) {
        *run *= count;
        return n;
    }
    const int64_t d = direction == TEMPI_PACK ? dim->packed_stride : dim->stride;
    const int64_t s = direction == TEMPI_PACK ? dim->stride : dim->packed_stride;
    if (n > 0 && d == axes[n - 1].n * axes[n - 1].d && s == axes[n - 1].n * axes[n - 1].s) {
        axes[n - 1].n *= count;
        return n;
    }
    axes[n].n = count;
    axes[n].d = d;
    axes[n].s = s;
    return n + 1;
}

/* Fills axes (innermost first) from dims (outermost first). */
static inline int fold_dims(const tempi_dim *dims, int ndims, int direction, int64_t *run,
                            tempi_axis *axes)
{
    int n = 0;
    for (int i = ndims - 1; i >= 0; i--)
        n = fold_dim(axes, n, &dims[i], direction, run);
    return n;
}

/* Splits the innermost axis into blocks: (x, y, ..) becomes (x in a block, y, blocks of x, ..). */
static void plan_block(loop_plan *plan, int64_t block)
{
    tempi_axis *axes = plan->axes;
    const tempi_axis x = axes[0];
    const int64_t blocks = x.n / block;
    for (int i = plan->naxes++; i > 2; i--)
        axes[i] = axes[i - 1];
    axes[2] = (tempi_axis){blocks, block * x.d, block * x.s};
    axes[0].n = block;
    plan->rest = (tempi_axis){x.n - blocks * block, blocks * block * x.d, blocks * block * x.s};
}

/* Completes a plan whose run and axes[0..naxes) are set. */
static void plan_finish(loop_plan *plan, const tempi_kernels *kernels)
{
    plan->loop.axis = plan->axes;
    plan->rest.n = 0;
    if (plan->naxes > 1) {
        const int64_t block = tempi_order_axes(plan->axes, plan->naxes, plan->loop.run);
        if (block)
            plan_block(plan, block);
    }
    while (plan->naxes < 3) {
        tempi_axis *none = &plan->axes[plan->naxes++];
        none->n = 1;
        none->d = 0;
        none->s = 0;
    }
    tempi_candidates candidates;
    kernels->loop(&plan->loop, &candidates);
    plan->kernel = candidates.way[0];
    plan->tuned = candidates.n > 1 ? tempi_tune_find(&plan->loop, &candidates) : NULL;
}

static void plan_leaf(const loop_plan *plan, char *dst, const char *src)
{
    if (plan->tuned)
        tempi_tune_run(plan->tuned, dst, src, &plan->loop);
    else
        plan->kernel(dst, src, &plan->loop);
    if (plan->rest.n) {
        const tempi_axis axes[3] = {
            {plan->rest.n, plan->axes[0].d, plan->axes[0].s}, plan->axes[1], {1, 0, 0}};
        const tempi_loop rest = {axes, plan->loop.run, false, 0};
        plan->kernel(dst + plan->rest.d, src + plan->rest.s, &rest);
    }
}

/* Loops over axes[3..naxes). */
static void plan_run(const loop_plan *plan, int naxes, char *dst, const char *src)
{
    if (naxes == 3) {
        plan_leaf(plan, dst, src);
        return;
    }
    const tempi_axis *axis = &plan->axes[naxes - 1];
    for (int64_t i = 0; i < axis->n; i++)
        plan_run(plan, naxes - 1, dst + i * axis->d, src + i * axis->s);
}

/* A table with dims inside: runs the inner plan once per entry. */
static void run_entries(const loop_plan *inner, const tempi_list *list, int direction, char *dst,
                        const char *src)
{
    for (int64_t j = 0; j < list->n; j++) {
        const int64_t d = direction == TEMPI_PACK ? list->e[j].packed : list->e[j].offset;
        const int64_t s = direction == TEMPI_PACK ? list->e[j].offset : list->e[j].packed;
        plan_run(inner, inner->naxes, dst + d, src + s);
    }
}

/* The plan of one table: the loops around it and its contents. */
typedef struct table_plan {
    tempi_list list;
    tempi_list_fn kernel; /* NULL: run inner once per entry */
    const loop_plan *inner;
    int direction;
    const tempi_axis *outer; /* innermost first */
} table_plan;

static void table_run(const table_plan *plan, int nouter, char *dst, const char *src)
{
    if (nouter > 0) {
        const tempi_axis *axis = &plan->outer[nouter - 1];
        for (int64_t i = 0; i < axis->n; i++)
            table_run(plan, nouter - 1, dst + i * axis->d, src + i * axis->s);
    } else if (plan->kernel) {
        plan->kernel(dst, src, &plan->list);
    } else {
        run_entries(plan->inner, &plan->list, plan->direction, dst, src);
    }
}

static void copy_table(const tempi_nest *nest)
{
    const tempi_kernels *kernels = tempi_kernels_get();
    char *packed = nest->packed - nest->bias;
    char *dst = nest->direction == TEMPI_PACK ? packed : nest->mem;
    const char *src = nest->direction == TEMPI_PACK ? nest->mem : packed;
    loop_plan inner;
    inner.loop.run = nest->run;
    inner.loop.nontemporal = nest->nontemporal;
    inner.loop.whole = nest->whole;
    inner.naxes = fold_dims(nest->dims + nest->depth, nest->ndims - nest->depth, nest->direction,
                            &inner.loop.run, inner.axes);
    plan_finish(&inner, kernels);
    tempi_axis outer[MAX_AXES];
    int64_t no_run = 0; /* nothing continues a table */
    int nouter = fold_dims(nest->dims, nest->depth, nest->direction, &no_run, outer);
    table_plan plan = {.list = {nest->entries, nest->nentries, {1, 0, 0}, inner.loop.run},
                       .inner = &inner,
                       .direction = nest->direction,
                       .outer = outer};
    if (inner.naxes == 3 && inner.axes[0].n == 1) { /* only a run inside */
        plan.kernel = kernels->list(plan.list.run, nest->direction);
        if (nouter > 0) {
            plan.list.outer = outer[0];
            plan.outer++;
            nouter--;
        }
    }
    table_run(&plan, nouter, dst, src);
}

/* Completes a plan whose run and axes[0..naxes) are set, and runs it once. */
static inline void plan_copy(loop_plan *plan, char *mem, char *packed, int direction)
{
    const tempi_kernels *kernels = tempi_kernels_get();
    char *dst = direction == TEMPI_PACK ? packed : mem;
    const char *src = direction == TEMPI_PACK ? mem : packed;
    if (plan->naxes == 0) {
        (plan->loop.nontemporal ? kernels->copy_nontemporal : kernels->copy)(dst, src,
                                                                             plan->loop.run);
        return;
    }
    plan_finish(plan, kernels);
    plan_run(plan, plan->naxes, dst, src);
}

void tempi_nest_copy(const tempi_nest *nest)
{
    if (nest->entries) {
        copy_table(nest);
        return;
    }
    loop_plan plan;
    plan.loop.run = nest->run;
    plan.loop.nontemporal = nest->nontemporal;
    plan.loop.whole = nest->whole;
    plan.naxes = fold_dims(nest->dims, nest->ndims, nest->direction, &plan.loop.run, plan.axes);
    plan_copy(&plan, nest->mem, nest->packed, nest->direction);
}

void tempi_box_copy(const tempi_box *box, const tempi_dim *elements, char *mem, char *packed,
                    int direction)
{
    loop_plan plan;
    plan.loop.run = box->run;
    plan.loop.nontemporal = false;
    plan.loop.whole = 0;
    plan.naxes = fold_dims(box->dims, box->ndims, direction, &plan.loop.run, plan.axes);
    plan.naxes = fold_dim(plan.axes, plan.naxes, elements, direction, &plan.loop.run);
    plan_copy(&plan, mem, packed, direction);
}

/* ---- cached plans ---------------------------------------------------------------------------- */

typedef struct cached_plan {
    unsigned epoch;
    loop_plan plan;
} cached_plan;

static cached_plan *cache_plan(_Atomic(void *) *slot, const tempi_box *box, int direction,
                               unsigned epoch)
{
    cached_plan *cached = malloc(sizeof *cached);
    if (!cached)
        return NULL;
    loop_plan *plan = &cached->plan;
    cached->epoch = epoch;
    plan->loop.run = box->run;
    plan->loop.nontemporal = false;
    plan->loop.whole = 0;
    plan->naxes = fold_dims(box->dims, box->ndims, direction, &plan->loop.run, plan->axes);
    if (plan->naxes > 0)
        plan_finish(plan, tempi_kernels_get());
    void *other = NULL;
    if (atomic_compare_exchange_strong_explicit(slot, &other, cached, memory_order_acq_rel,
                                                memory_order_acquire))
        return cached;
    free(cached);
    return other;
}

bool tempi_layout_copy(const tempi_layout *layout, char *mem, char *packed, int direction)
{
    const tempi_box *box = layout->boxes;
    if (!layout->cache)
        return false;
    _Atomic(void *) *slot = (_Atomic(void *) *)layout->cache + direction;
    const unsigned epoch = atomic_load_explicit(&tempi_kernels_epoch, memory_order_relaxed);
    const cached_plan *cached = atomic_load_explicit(slot, memory_order_acquire);
    if (!cached) {
        if (layout->nboxes != 1 || box->table)
            return false;
        cached = cache_plan(slot, box, direction, epoch);
    }
    if (!cached || cached->epoch != epoch)
        return false;
    const loop_plan *plan = &cached->plan;
    mem += box->offset;
    char *dst = direction == TEMPI_PACK ? packed : mem;
    const char *src = direction == TEMPI_PACK ? mem : packed;
    if (plan->naxes == 0)
        tempi_kernels_get()->copy(dst, src, plan->loop.run);
    else if (plan->naxes == 3)
        plan_leaf(plan, dst, src);
    else
        plan_run(plan, plan->naxes, dst, src);
    return true;
}
