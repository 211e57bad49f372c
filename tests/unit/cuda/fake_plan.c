/* fake_plan.c: the planner and the kernels for the fake driver. One kernel, which gets the
 * operations as its descriptors and does them by tempi_pack and tempi_unpack: the fake's device
 * memory is the host's. */
#include "fake_plan.h"
#include "cuda/plan.h"
#include <stdlib.h>
#include <string.h>

const tempi_kernel_image tempi_kernel_images[] = {{"sm_80", "older code", 11},
                                                  {"sm_90", "code", 5},
                                                  {"sm_90a", "one card's", 11},
                                                  {"sm_100", "newer code", 11},
                                                  {"ptx", "text", 5}};
const int tempi_kernel_image_count = 5;
const char *const tempi_kernel_names[] = {"fake"};

void fake_kernel(uint64_t *params)
{
    const tempi_op *ops = (const tempi_op *)params[0];
    for (uint64_t i = 0; i < params[1]; i++) {
        if (ops[i].direction == TEMPI_PACK)
            tempi_pack(ops[i].layout, ops[i].count, ops[i].mem, ops[i].first, ops[i].n,
                       ops[i].packed);
        else
            tempi_unpack(ops[i].layout, ops[i].count, ops[i].packed, ops[i].first, ops[i].n,
                         ops[i].mem);
    }
}

int tempi_table_form_of(const tempi_table *table, bool variable, tempi_table_form *out)
{
    *out = (tempi_table_form){.bytes = (table->n + variable) * (int64_t)sizeof(tempi_entry),
                              .n = (uint32_t)table->n};
    return TEMPI_OK;
}

void tempi_table_encode(const tempi_table *table, bool variable, const tempi_table_form *form,
                        void *bytes)
{
    (void)variable;
    memcpy(bytes, table->entries, (size_t)form->bytes);
}

/* The tables that are asked for must be those of the layouts: compared by the kernel's time at the
 * latest, since the copy is ordered before it. */
static int ask_tables(const tempi_op *op, const tempi_plan_hooks *hooks)
{
    for (int i = 0; i < op->layout->nboxes; i++) {
        const tempi_box *box = &op->layout->boxes[i];
        tempi_device_table there;
        if (box->table &&
            hooks->table(hooks->context, box->table, box->run == 0, &there) != TEMPI_OK)
            return TEMPI_ERR_MEMORY;
    }
    return TEMPI_OK;
}

int fake_plans;
tempi_launch fake_launch = {.grid = 1000, .block = 32};

int tempi_cuda_plan(const tempi_op *ops, int n, const tempi_plan_hooks *hooks, tempi_plan *plan)
{
    fake_plans++;
    plan->ncopies = plan->nlaunches = plan->npatches = 0;
    plan->nbytes = (size_t)n * sizeof *ops;
    free(plan->bytes);
    plan->bytes = malloc(plan->nbytes);
    if (!plan->launches)
        plan->launches = calloc(1, sizeof *plan->launches);
    if (!plan->copies)
        plan->copies = calloc(1, sizeof *plan->copies);
    memcpy(plan->bytes, ops, plan->nbytes);
    for (int i = 0; i < n; i++)
        if (ask_tables(&ops[i], hooks) != TEMPI_OK)
            return TEMPI_ERR_MEMORY;
    if (n == 1 && ops[0].layout->dense) {
        const uint64_t mem = (uintptr_t)ops[0].mem + (uint64_t)ops[0].first,
                       packed = (uintptr_t)ops[0].packed;
        const bool packs = ops[0].direction == TEMPI_PACK;
        plan->copies[plan->ncopies++] = (tempi_device_copy){
            .dst = packs ? packed : mem, .src = packs ? mem : packed, .n = ops[0].n};
        plan->nbytes = 0;
        return TEMPI_OK;
    }
    tempi_launch *launch = &plan->launches[plan->nlaunches++];
    *launch = fake_launch;
    launch->nparams = 2;
    launch->params[1] = (uint64_t)n;
    plan->patches[plan->npatches++] = (tempi_plan_patch){0, 0};
    return TEMPI_OK;
}

int tempi_cuda_plan_take(tempi_plan *plan, const tempi_launch *launches, int n)
{
    plan->ncopies = plan->npatches = 0;
    plan->nbytes = 0;
    plan->nlaunches = n;
    free(plan->launches);
    plan->launches = malloc((size_t)n * sizeof *launches);
    memcpy(plan->launches, launches, (size_t)n * sizeof *launches);
    return TEMPI_OK;
}

void tempi_cuda_plan_patch(tempi_plan *plan, uint64_t address)
{
    plan->launches[plan->patches[0].launch].params[plan->patches[0].param] += address;
}

void tempi_cuda_plan_free(tempi_plan *plan)
{
    free(plan->bytes);
    free(plan->launches);
    free(plan->copies);
    memset(plan, 0, sizeof *plan);
}

/* Moves are tested on the emulator. */
int tempi_cuda_plan_strided(const tempi_side *src, const tempi_side *dst, int64_t n,
                            const tempi_plan_hooks *hooks, tempi_plan *plan)
{
    (void)src, (void)dst, (void)n, (void)hooks, (void)plan;
    return TEMPI_ERR_UNSUPPORTED;
}
