/* Which method carries a message whose buffer is device memory. */
#ifndef TEMPI_MODEL_METHOD_H
#define TEMPI_MODEL_METHOD_H

#include <stdbool.h>
#include <stdint.h>

/* Whether a method is asked for, by TEMPI_DATATYPE_* or for measuring, so that nothing is to be chosen. */
bool tempi_method_is_forced(bool aware);

/* A method of pack/pack.h (TEMPI_ON_DEVICE, TEMPI_ONE_SHOT, TEMPI_STAGED, TEMPI_PIPELINED), or
 * TEMPI_ON_HOST: hand the buffer to the library as it is. `dense`: one run, which needs no kernel.
 * `aware`: the library takes device addresses. TEMPI_DATATYPE_* decide where they are set. */
int tempi_method_choose(int64_t bytes, bool dense, bool aware);

#endif
