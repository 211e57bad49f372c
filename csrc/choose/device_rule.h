/* The built-in rule for device memory, and the settings that override it. */
#ifndef TEMPI_CHOOSE_DEVICE_RULE_H
#define TEMPI_CHOOSE_DEVICE_RULE_H

#include "tempi.h"

#include <stdbool.h>
#include <stdint.h>

/* Whether the method is fixed: by TEMPI_METHOD, for dense messages by TEMPI_CONTIGUOUS_*, or by a
 * measurement. */
bool tempi_device_rule_is_forced(bool dense, bool cuda_aware);
/* Whether TEMPI_METHOD=library selects the library, which then has to take the device address. */
bool tempi_device_rule_leaves(void);

/* A device method, or TEMPI_METHOD_LIBRARY: pass the buffer through. `dense`: one run, which needs
 * a copy and no kernel. `few_rows`: the driver copies it to and from pinned memory as it is.
 * `cuda_aware`: the library is CUDA-aware. Settings take precedence. */
tempi_method tempi_device_rule(int64_t bytes, bool dense, bool few_rows, bool cuda_aware);

/* The same for bytes between device memory and pinned memory, without a message. */
tempi_method tempi_device_rule_of_packing(int64_t bytes, bool few_rows);

#endif
