#include "exchange/invitation.h"
#include "exchange/copy_choice.h"
#include "exchange/far_copy.h"

bool tempi_invitation_suits(const tempi_op *block)
{
    return block->n >= TEMPI_INVITED_LEAST;
}

bool tempi_invitation_place(const tempi_op *blocks, int64_t n, tempi_nest_shape *place)
{
    return n == 1 && tempi_invitation_suits(&blocks[0]) && tempi_nest_describe(&blocks[0], place) &&
           place->run >= TEMPI_COPY_RUN_LEAST;
}

void tempi_invite(tempi_invitation *own, uint64_t call, const tempi_op *blocks, int64_t n)
{
    if (!tempi_invitation_place(blocks, n, &own->shape))
        own->shape.runs = 0;
    else if (own->process.value == 0)
        tempi_single_copy_offer(&own->process); /* takes system calls */
    __atomic_store_n(&own->call, call, __ATOMIC_RELEASE);
}

bool tempi_invitation_is_there(const tempi_invitation *of, uint64_t call)
{
    return __atomic_load_n(&of->call, __ATOMIC_ACQUIRE) >= call;
}

bool tempi_invitation_fits(const tempi_invitation *of, uint64_t call, const tempi_op *block)
{
    return of->call == call && of->shape.run * of->shape.runs == block->n;
}

bool tempi_invitation_follow(const tempi_invitation *of, const tempi_op *block)
{
    const tempi_nest_shape place = of->shape;
    return tempi_far_store(&of->process, &place, block);
}
