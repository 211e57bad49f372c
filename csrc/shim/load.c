/* The shim's only entry point: libtempi.so loads this library above the MPI that it found. */
#include "base/config.h"
#include "base/hooks.h"
#include "interposer/interposer.h"
#include "shim/comm/comm_stream.h"
#include "shim/comm/cuda_aware.h"
#include "shim/comm/cuda_support.h"
#include "shim/comm/peer_class.h"
#include "shim/lifecycle.h"
#include "shim/request/deferred_sends.h"
#include "shim/request/quiet.h"
#include "shim/type/types.h"
#include "slots.h"

#include <stddef.h>

__attribute__((visibility("default"))) void *const *tempi_shim_load(
    const struct tempi_interposer *interposer, const char **reason)
{
    if (interposer->digest != TEMPI_SLOT_DIGEST) {
        *reason = "libtempi.so and the engine for this MPI come from different builds";
        return NULL;
    }
    *reason = tempi_mpi_bind(interposer);
    if (*reason != NULL)
        return NULL;
    tempi_quiet_start();
    tempi_cuda_aware_find(interposer);
    tempi_support_find(interposer);
    if (!interposer->off) {
        tempi_shim_hooks.datatype_layout = tempi_datatype_layout_of;
        tempi_shim_hooks.comm_set_stream = tempi_stream_set;
        tempi_shim_hooks.comm_peer = tempi_peer_report;
        tempi_shim_hooks.comm_probe = tempi_peer_probe;
        tempi_shim_hooks.pending_add = tempi_pending_add;
        tempi_lifecycle_loaded();
    }
    return tempi_shim_entries(interposer);
}
