/* Helpers that the generated wrappers call around the library's functions. */
#ifndef TEMPI_SHIM_IMPL_H
#define TEMPI_SHIM_IMPL_H

#include "choose/message_trials.h"
#include "impl_prototypes.h"
#include "memory/kind.h"
#include "shim/request/deferred_sends.h"
#include "shim/request/quiet.h"
#include "shim/type/types.h"

/* All communicators share one list of deferred sends, so a send on any of them posts all. */
#define tempi_before_sending(comm) tempi_post_all()

#endif
