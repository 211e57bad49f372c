#include "exchange/invitation.h"
#include "exchange/copy_choice.h"

/* The kernel takes too long for short runs. */
static bool has_long_runs(const tempi_op *block, tempi_nest_shape *shape)
{
    return block->n >= TEMPI_INVITED_LEAST && tempi_nest_describe(block, shape) &&
           shape->run >= TEMPI_COPY_RUN_LEAST;
}

void tempi_invite(tempi_invitation *own, uint64_t call, const tempi_op *blocks, int64_t n)
{
    if (n == 1 && has_long_runs(&blocks[0], &own->shape))
        tempi_single_copy_offer(&own->process); /* takes system calls */
    else
        own->shape.runs = 0;
    __atomic_store_n(&own->call, call, __ATOMIC_RELEASE);
}

bool tempi_invitation_is_there(const tempi_invitation *of, uint64_t call)
{
    return __atomic_load_n(&of->call, __ATOMIC_ACQUIRE) >= call;
}

bool tempi_invitation_fits(const tempi_invitation *of, uint64_t call, const tempi_op *block)
{
    tempi_nest_shape shape;
    return has_long_runs(block, &shape) && of->call == call &&
           of->shape.run * of->shape.runs == block->n;
}

bool tempi_invitation_follow(const tempi_invitation *of, const tempi_op *block)
{
    const tempi_nest_shape there = of->shape;
    tempi_nest_shape own;
    tempi_nest_walk from, to;
    if (!tempi_nest_describe(block, &own) || !tempi_single_copy_reaches(&of->process))
        return false;
    tempi_nest_begin(&from, &own);
    tempi_nest_begin(&to, &there);
    return tempi_single_copy_write((pid_t)of->process.process, &from, &to, block->n);
}
