/* cuda/move_pairs.h: pairs of layouts that are known to have a plan for a copy from the one to the
 * other (plan.h: tempi_cuda_plan_strided). That depends on no address; so of a move that is
 * repeated it need not be found out again. */
#ifndef TEMPI_CUDA_MOVE_PAIRS_H
#define TEMPI_CUDA_MOVE_PAIRS_H

#include "pack/pack.h"

/* Of an operation with `into`. */
bool tempi_move_pair_is_known(const tempi_op *op);
/* Holds both layouts until another pair takes the place. */
void tempi_move_pair_note(const tempi_op *op);
void tempi_move_pairs_clear(void);

#endif
