/* What the generated wrappers call around the library's functions. */
#ifndef TEMPI_SHIM_ACT_H
#define TEMPI_SHIM_ACT_H

#include "impl_prototypes.h"
#include "memory/kind.h"
#include "shim/request/deferred_sends.h"
#include "shim/type/types.h"

/* Nothing is queued, and no buffer can be a device's: only its datatype can make a call ours. */
static inline bool tempi_quiet(void)
{
    return !tempi_pending_any() && !tempi_memory_mixed;
}

/* The queue is one for all communicators, so a send anywhere posts all of it. */
#define tempi_before_sending(comm) tempi_before_blocking()

#endif
