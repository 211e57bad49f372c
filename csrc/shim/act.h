/* What the generated wrappers call around the library's functions. */
#ifndef TEMPI_SHIM_ACT_H
#define TEMPI_SHIM_ACT_H

#include "act_prototypes.h"
#include "shim/queue.h"

/* The queue is one for all communicators, so a send anywhere posts all of it. */
#define tempi_before_sending(comm) tempi_before_blocking()

#endif
