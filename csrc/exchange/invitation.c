#include "exchange/invitation.h"
#include "exchange/copy_choice.h"

static bool is_long(const tempi_op *block, int64_t run_least, tempi_nest_shape *shape)
{
    return block->n >= TEMPI_INVITED_LEAST && tempi_nest_describe(block, shape) &&
           shape->run >= run_least;
}

void tempi_invite(tempi_invitation *own, uint64_t call, const tempi_op *blocks, int64_t n)
{
    if (n != 1 || !is_long(&blocks[0], TEMPI_COPY_RUN_LEAST, &own->shape))
        own->shape.runs = 0;
    else if (own->process.value == 0)
        tempi_single_copy_offer(&own->process); /* takes system calls */
    __atomic_store_n(&own->call, call, __ATOMIC_RELEASE);
}

bool tempi_invitation_suits(const tempi_op *block, tempi_nest_shape *shape)
{
    return is_long(block, TEMPI_INVITED_RUN_LEAST, shape);
}

bool tempi_invitation_is_there(const tempi_invitation *of, uint64_t call)
{
    return __atomic_load_n(&of->call, __ATOMIC_ACQUIRE) >= call;
}

bool tempi_invitation_fits(const tempi_invitation *of, uint64_t call, const tempi_nest_shape *shape)
{
    return of->call == call && of->shape.run * of->shape.runs == shape->run * shape->runs;
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
