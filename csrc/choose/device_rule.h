/* Which method carries a message whose buffer is device memory. */
#ifndef TEMPI_MODEL_METHOD_H
#define TEMPI_MODEL_METHOD_H

#include <stdbool.h>
#include <stdint.h>

/* Whether a method is asked for, by TEMPI_METHOD, for dense messages TEMPI_CONTIGUOUS_*, or for
 * measuring, so that nothing is to be chosen. */
bool tempi_method_is_forced(bool dense, bool aware);
/* Whether TEMPI_METHOD=library asks for the library, which has to take the address. */
bool tempi_method_left(void);

/* A method of pack/pack.h (TEMPI_ON_DEVICE, TEMPI_ONE_SHOT, TEMPI_STAGED, TEMPI_PIPELINED), or
 * TEMPI_ON_HOST: hand the buffer to the library as it is. `dense`: one run, which needs no kernel,
 * but a copy. `aware`: the library takes device addresses. The settings decide where they are set.
 */
int tempi_method_choose(int64_t bytes, bool dense, bool aware);

/* The same for bytes between a device's memory and pinned memory, without a message. */
int tempi_method_choose_part(int64_t bytes);

#endif
