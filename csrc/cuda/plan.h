/* cuda/plan.h: from pack operations to kernel launches. Pure: it calls no driver and touches none
 * of the memory that it plans for, so it behaves the same on a machine without a GPU.
 *
 *   ops -> pieces (one box of one op, cut to the op's fragment: plan_piece.h)
 *       -> a copy       for one contiguous run on both sides, if no kernel runs anyway
 *        | a copy       of few rows, if the op is the only one (row_copies.h)
 *        | one launch   scalar parameters only, for an op of one box
 *        | one launch   a block of descriptors, for all pieces of all other ops (plan_boxes.c)
 *
 * How a caller uses a plan:
 *   1. tempi_cuda_plan(ops, n, &hooks, &plan); the plan's buffers are reused by the next call
 *   2. if plan.nbytes: copy plan.bytes to 16-byte aligned device memory at D, in stream order
 * before the launches, and call tempi_cuda_plan_patch(&plan, D)
 *   3. do plan.copies and plan.launches, in any order, on one stream
 *   4. keep the layouts, the tables' device memory and D until they are done
 */
#ifndef TEMPI_CUDA_PLAN_H
#define TEMPI_CUDA_PLAN_H
#include "cuda/kernels.h"
#include "pack/pack.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* n contiguous bytes from one address to another: done by the driver's copy. */
typedef struct tempi_device_copy {
    uint64_t dst;
    uint64_t src;
    int64_t n;
    bool by_kernel; /* kernels reach both sides */
    int64_t rows;   /* 0: one; else so many, at these distances */
    int64_t dst_pitch, src_pitch;
} tempi_device_copy;

/* ---- offset tables on the device ------------------------------------------------------------- */

/* The encoding of a tempi_table in device memory, by tempi_table_encode (plan_offsets.c):
 *
 *   offsets[n]   4 bytes each, 8 if wide
 *   packed[n]    the same, counted from entry 0; only if step == 0
 *   guide[]      only with variable runs: the entry that holds packed byte g << guide_shift
 */
typedef struct tempi_table_form {
    int64_t bytes;      /* of the encoded table */
    uint64_t bits;      /* all offsets, positions and lengths, or'ed: their common alignment */
    int64_t step;       /* entry j lies at packed position j * step; 0: at packed[j] */
    int64_t span;       /* packed bytes with variable runs, else position of the last entry */
    int64_t reach;      /* largest distance of an offset from 0 */
    uint32_t n;         /* entries */
    uint32_t wide;      /* 1: 64-bit numbers */
    uint32_t packed_at; /* byte offset of packed[] in the encoded table, / 16 */
    uint32_t guide_at;  /* byte offset of guide[], / 16 */
    uint32_t guide_shift;
} tempi_table_form;

typedef struct tempi_device_table {
    uint64_t address; /* of the encoded table on the device; 16-byte aligned */
    tempi_table_form form;
} tempi_device_table;

/* The encoding of a table on a device; TEMPI_ERR_UNSUPPORTED for 2^31 entries and more. `variable`:
 * the table belongs to boxes of run == 0. */
int tempi_table_form_of(const tempi_table *table, bool variable, tempi_table_form *out);
/* Writes form->bytes bytes. */
void tempi_table_encode(const tempi_table *table, bool variable, const tempi_table_form *form,
                        void *bytes);

/* ---- planning -------------------------------------------------------------------------------- */

/* Callbacks and facts from the planner's caller. All but `table` may be zero. */
typedef struct tempi_plan_hooks {
    void *context;
    /* Returns the device's copy of a table, made (form_of, encode, copy) on first use and owned by
     * the caller. NULL: layouts with tables are TEMPI_ERR_UNSUPPORTED. */
    int (*table)(void *context, const tempi_table *table, bool variable, tempi_device_table *out);
    /* Whether to plan this box; NULL: all. For a message whose boxes lie in several memories
     * (tempi_box.space), each with a plan of its own. */
    bool (*takes)(void *context, const tempi_op *op, const tempi_box *box);
    int multiprocessors; /* of the device; 0: 80 */
    bool kernels;        /* there are kernels for it: many copies become one launch */
    int64_t copied_rows; /* a single piece of at most so many runs is a copy; 0: none */
} tempi_plan_hooks;

/* Where to add the address of the descriptor block: params[param] of launch `launch`. */
typedef struct tempi_plan_patch {
    int launch;
    int param;
} tempi_plan_patch;

enum { TEMPI_PLAN_PATCHES = 4 };

/* A plan and its buffers; all zero is an empty plan. */
typedef struct tempi_plan {
    tempi_device_copy *copies;
    int ncopies;
    tempi_launch *launches;
    int nlaunches;
    void *bytes; /* the descriptor block; 0 bytes if no launch needs one */
    size_t nbytes;
    int npatches;
    tempi_plan_patch patches[TEMPI_PLAN_PATCHES];
    struct tempi_plan_room *room; /* the planner's own memory */
} tempi_plan;

/* Plans n operations of one direction; mem and packed are device addresses (or host addresses that
 * the device can reach). On failure the plan is empty: TEMPI_ERR_MEMORY, TEMPI_ERR_UNSUPPORTED (no
 * table hook), or the table hook's error. */
int tempi_cuda_plan(const tempi_op *ops, int n, const tempi_plan_hooks *hooks, tempi_plan *plan);

/* One side of a copy from strided memory to strided memory. */
typedef struct tempi_side {
    const tempi_layout *layout;
    int64_t count;
    uint64_t mem;
} tempi_side;

/* Plans a copy of the first n packed bytes of `src` to the positions of the first n of `dst`, with
 * no packed buffer between: a loopback message. The memories must not overlap.
 * TEMPI_ERR_UNSUPPORTED if the two layouts have no common blocks (or tables): then pack into a
 * buffer and unpack. */
int tempi_cuda_plan_strided(const tempi_side *src, const tempi_side *dst, int64_t n,
                            const tempi_plan_hooks *hooks, tempi_plan *plan);

/* Makes it the plan of these launches alone, which need no patch. */
int tempi_cuda_plan_take(tempi_plan *plan, const tempi_launch *launches, int n);
/* Patches the device address of the descriptor block into the launches. Once per plan. */
void tempi_cuda_plan_patch(tempi_plan *plan, uint64_t address);
/* Frees the buffers; the plan is then empty. */
void tempi_cuda_plan_free(tempi_plan *plan);

/* Blocks to launch for that many threads' worth of work (> 0): enough to fill the device a few
 * times over, never more than the work needs. Kernels cover the rest in grid-sized steps. */
unsigned tempi_cuda_grid(int64_t work, int multiprocessors);

/* Whether a launch takes its whole grid, on a device that runs so many blocks of the kernel at a
 * time (0: unknown) and has so many bytes of cache (0: unknown). */
bool tempi_launch_is_whole(const tempi_launch *launch, unsigned blocks, int64_t cache);

#endif
