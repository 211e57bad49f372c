/* The built-in rule for device memory, and the settings that overrule it. */
#ifndef TEMPI_CHOOSE_DEVICE_RULE_H
#define TEMPI_CHOOSE_DEVICE_RULE_H

#include "tempi.h"

#include <stdbool.h>
#include <stdint.h>

/* Whether a method is asked for, by TEMPI_METHOD, for dense messages TEMPI_CONTIGUOUS_*, or for
 * measuring, so that nothing is to be chosen. */
bool tempi_device_rule_is_forced(bool dense, bool aware);
/* Whether TEMPI_METHOD=library asks for the library, which has to take the address. */
bool tempi_device_rule_leaves(void);

/* A device's method, or TEMPI_METHOD_LIBRARY: hand the buffer over as it is. `dense`: one run,
 * which needs no kernel, but a copy. `aware`: the library takes device addresses. The settings
 * decide where they are set. */
tempi_method tempi_device_rule(int64_t bytes, bool dense, bool aware);

/* The same for bytes between a device's memory and pinned memory, without a message. */
tempi_method tempi_device_rule_of_packing(int64_t bytes);

#endif
