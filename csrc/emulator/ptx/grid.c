/* grid.c: runs the blocks and threads of a launch, one after the other, in an order that depends on
 * the seed.
 *
 * 1. A thread runs until it exits, faults, or waits for its block or its warp.
 * 2. When every thread of the block has returned, complete groups of waiting threads continue: the
 *    lanes of a warp once all requested lanes have met, the block once all its threads wait at one
 *    barrier.
 * 3. If nothing can continue, the kernel waits for ever: an error, not a hang. */
#include "emulator/core/emulator.h"

#include <stdlib.h>

enum { SHARED_POISON = 0xb5, LOCAL_POISON = 0xc3 };

typedef struct {
    const tempi_emu_launch *launch;
    tempi_ptx_block block;
    uint32_t threads;
    tempi_ptx_thread *thread;
    uint8_t *state;     /* why each thread returned */
    uint8_t *registers; /* of threads that may wait */
    uint8_t *local;
    uint64_t (*shown)[TEMPI_PTX_WARP];
} grid;

enum { RUNNABLE = 16 }; /* in addition to the TEMPI_PTX_* reasons */

/* ---- memory ---------------------------------------------------------------------------------- */

static int find(tempi_ptx_block *block, uint64_t address, tempi_ptx_span *span)
{
    const grid *const g = block->owner;
    tempi_emu_lock();
    const tempi_emu_range *const range = tempi_emu_range_find(address);
    const bool found = range != NULL && tempi_emu_range_open_to(range, g->launch->context);
    const bool pageable = range == NULL && tempi_emu_pageable_access(address);
    const uint64_t page = address - address % EMU_PAGE;
    if (found)
        *span = (tempi_ptx_span){range->base, range->size, range->bytes};
    else if (pageable)
        *span = (tempi_ptx_span){page, EMU_PAGE, (uint8_t *)(uintptr_t)page};
    tempi_emu_unlock();
    return found || pageable;
}

/* ---- order ----------------------------------------------------------------------------------- */

typedef struct {
    uint64_t count;
    uint64_t first;
    uint64_t step; /* coprime with count */
} permutation;

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 31) * 0x7fb5d329728ea185ull;
    x = (x ^ x >> 27) * 0x81dadef4bc2dd44dull;
    return x ^ x >> 33;
}

static uint64_t common_factor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static permutation shuffle(uint64_t count, uint64_t seed)
{
    permutation made = {count, mix(seed) % count, 1 + mix(seed + 1) % count};
    while (common_factor(count, made.step) != 1)
        made.step++;
    return made;
}

static uint64_t at(const permutation *order, uint64_t i)
{
    return (uint64_t)((order->first + (unsigned __int128)i * order->step) % order->count);
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* The lanes of a warp that have not exited, and those of them that wait for the warp. */
static void lanes_of(const grid *g, uint32_t warp, uint32_t *alive, uint32_t *waiting)
{
    *alive = 0;
    *waiting = 0;
    for (uint32_t lane = 0; lane < TEMPI_PTX_WARP; lane++) {
        const uint32_t i = warp * TEMPI_PTX_WARP + lane;
        if (i >= g->threads || g->state[i] == TEMPI_PTX_EXIT)
            continue;
        *alive |= 1u << lane;
        if (g->state[i] == TEMPI_PTX_WAIT_WARP)
            *waiting |= 1u << lane;
    }
}

/* Resumes the lanes of a warp that wait for each other and have all met. */
static bool release_warp(grid *g, uint32_t warp)
{
    uint32_t alive;
    uint32_t waiting;
    bool any = false;
    lanes_of(g, warp, &alive, &waiting);
    for (uint32_t lane = 0; lane < TEMPI_PTX_WARP; lane++) {
        if ((waiting >> lane & 1) == 0)
            continue;
        const uint32_t mask = g->thread[warp * TEMPI_PTX_WARP + lane].wait_mask;
        uint32_t met = 0;
        for (uint32_t other = 0; other < TEMPI_PTX_WARP; other++)
            if ((waiting >> other & 1) &&
                g->thread[warp * TEMPI_PTX_WARP + other].wait_mask == mask)
                met |= 1u << other;
        if ((mask & alive) != met)
            continue;
        for (uint32_t other = 0; other < TEMPI_PTX_WARP; other++) {
            if ((met >> other & 1) == 0)
                continue;
            tempi_ptx_thread *const t = &g->thread[warp * TEMPI_PTX_WARP + other];
            t->met_mask = met;
            g->shown[warp][other] = t->given;
            g->state[warp * TEMPI_PTX_WARP + other] = RUNNABLE;
        }
        waiting &= ~met;
        any = true;
    }
    return any;
}

/* Whether lanes of one warp wait at different instructions, one of which requires the whole
 * warp. */
static bool divergent(const grid *g)
{
    for (uint32_t i = 0; i < g->threads; i++) {
        const uint32_t first = i - i % TEMPI_PTX_WARP;
        if (g->state[i] == TEMPI_PTX_WAIT_BLOCK && g->state[first] == TEMPI_PTX_WAIT_BLOCK &&
            (g->thread[i].aligned || g->thread[first].aligned) &&
            g->thread[i].pc != g->thread[first].pc)
            return true;
    }
    return false;
}

/* Resumes threads at a barrier that enough threads have reached. */
static bool release_barriers(grid *g)
{
    uint32_t waiting[TEMPI_PTX_BARRIERS] = {0};
    bool any = false;
    for (uint32_t i = 0; i < g->threads; i++)
        if (g->state[i] == TEMPI_PTX_WAIT_BLOCK)
            waiting[g->thread[i].wait_id]++;
    for (uint32_t i = 0; i < g->threads; i++) {
        const tempi_ptx_thread *const t = &g->thread[i];
        if (g->state[i] != TEMPI_PTX_WAIT_BLOCK)
            continue;
        /* Exited threads count as well: a barrier that they never reach hangs. */
        const uint32_t wanted = t->wait_count ? t->wait_count : g->threads;
        if (waiting[t->wait_id] != wanted)
            continue;
        g->state[i] = RUNNABLE;
        any = true;
    }
    return any;
}

static bool release(grid *g)
{
    bool any = false;
    for (uint32_t warp = 0; warp * TEMPI_PTX_WARP < g->threads; warp++)
        any |= release_warp(g, warp);
    /* Barriers are checked only when nothing else can continue, so that their count is complete. */
    return any || (!divergent(g) && release_barriers(g));
}

static int stuck(grid *g)
{
    for (uint32_t i = 0; i < g->threads; i++) {
        const tempi_ptx_thread *const t = &g->thread[i];
        if (g->state[i] == TEMPI_PTX_EXIT)
            continue;
        tempi_emu_say(
            "%s: a thread waits for ever at PTX line %u (thread %u,%u,%u of block %u,%u,%u): "
            "others of its %s have exited or wait elsewhere",
            g->launch->kernel->name, t->wait_line, t->tid[0], t->tid[1], t->tid[2],
            g->block.ctaid[0], g->block.ctaid[1], g->block.ctaid[2],
            g->state[i] == TEMPI_PTX_WAIT_WARP ? "warp" : "block");
        break;
    }
    return CUDA_ERROR_LAUNCH_FAILED;
}

/* ---- running --------------------------------------------------------------------------------- */

static int fault(const grid *g, const tempi_ptx_thread *t)
{
    const tempi_ptx_block *const b = &g->block;
    const char *const what = b->fault == TEMPI_PTX_MISALIGNED        ? "misaligned address"
                             : b->fault == TEMPI_PTX_ILLEGAL_ADDRESS ? "illegal address"
                                                                     : "trap at";
    tempi_emu_say("%s: %s 0x%llx at PTX line %u (thread %u,%u,%u of block %u,%u,%u)",
                  g->launch->kernel->name, what, (unsigned long long)b->fault_address,
                  b->fault_line, t->tid[0], t->tid[1], t->tid[2], b->ctaid[0], b->ctaid[1],
                  b->ctaid[2]);
    return b->fault;
}

static void start_thread(grid *g, uint32_t i)
{
    const uint32_t *const n = g->launch->block;
    tempi_ptx_thread *const t = &g->thread[i];
    *t = (tempi_ptx_thread){
        .tid = {i % n[0], i / n[0] % n[1], i / (n[0] * n[1])},
        .lane = i % TEMPI_PTX_WARP,
        .warp = i / TEMPI_PTX_WARP,
        .shown = g->shown[i / TEMPI_PTX_WARP],
        .local = g->local + (size_t)i * g->launch->kernel->local_size,
    };
    g->state[i] = RUNNABLE;
}

/* Runs the block until all its threads have exited. */
static int run_block(grid *g, uint64_t seed)
{
    const tempi_ptx_kernel *const kernel = g->launch->kernel;
    const permutation order = shuffle(g->threads, seed);
    memset(g->block.shared, SHARED_POISON, g->block.shared_size);
    memset(g->local, LOCAL_POISON, (size_t)g->threads * kernel->local_size);
    memset(g->registers, LOCAL_POISON, (size_t)g->threads * kernel->registers);
    for (uint32_t i = 0; i < g->threads; i++)
        start_thread(g, i);
    for (;;) {
        uint32_t exited = 0;
        for (uint32_t k = 0; k < g->threads; k++) {
            const uint32_t i = (uint32_t)at(&order, k);
            if (g->state[i] == RUNNABLE)
                g->state[i] = (uint8_t)kernel->run(&g->block, &g->thread[i],
                                                   g->registers + (size_t)i * kernel->registers);
            if (g->state[i] == TEMPI_PTX_FAULT)
                return fault(g, &g->thread[i]);
            exited += g->state[i] == TEMPI_PTX_EXIT;
        }
        if (exited == g->threads)
            return CUDA_SUCCESS;
        if (!release(g))
            return stuck(g);
    }
}

static int run_blocks(grid *g)
{
    const uint32_t *const n = g->launch->grid;
    const uint64_t blocks = (uint64_t)n[0] * n[1] * n[2];
    const permutation order = shuffle(blocks, g->launch->seed);
    int result = CUDA_SUCCESS;
    for (uint64_t k = 0; k < blocks && result == CUDA_SUCCESS; k++) {
        const uint64_t i = at(&order, k);
        g->block.ctaid[0] = (uint32_t)(i % n[0]);
        g->block.ctaid[1] = (uint32_t)(i / n[0] % n[1]);
        g->block.ctaid[2] = (uint32_t)(i / n[0] / n[1]);
        result = run_block(g, g->launch->seed + k);
    }
    return result;
}

CUresult tempi_emu_grid_run(const tempi_emu_launch *launch)
{
    const tempi_ptx_kernel *const k = launch->kernel;
    const uint32_t threads = launch->block[0] * launch->block[1] * launch->block[2];
    const uint32_t warps = (threads + TEMPI_PTX_WARP - 1) / TEMPI_PTX_WARP;
    grid g = {.launch = launch, .threads = threads};
    g.thread = calloc(threads, sizeof *g.thread);
    g.state = calloc(threads, 1);
    g.registers = calloc(threads, k->registers ? k->registers : 1);
    g.local = calloc(threads, k->local_size ? k->local_size : 1);
    g.shown = calloc(warps, sizeof *g.shown);
    g.block = (tempi_ptx_block){
        .param = launch->param,
        .param_size = k->param_size,
        .variables = launch->variables,
        .shared = calloc(1, (size_t)k->shared_size + launch->dynamic_shared + 1),
        .shared_size = k->shared_size + launch->dynamic_shared,
        .shared_static = k->shared_size,
        .local_size = k->local_size,
        .ntid = {launch->block[0], launch->block[1], launch->block[2]},
        .nctaid = {launch->grid[0], launch->grid[1], launch->grid[2]},
        .spans = calloc(k->sites ? k->sites : 1, sizeof(tempi_ptx_span)),
        .find = find,
        .owner = &g,
    };
    int result = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    if (g.thread && g.state && g.registers && g.local && g.shown && g.block.shared && g.block.spans)
        result = run_blocks(&g);
    free(g.thread);
    free(g.state);
    free(g.registers);
    free(g.local);
    free(g.shown);
    free(g.block.shared);
    free(g.block.spans);
    return result;
}
