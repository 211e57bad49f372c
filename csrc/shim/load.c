/* The shim's one door: libtempi.so loads this library above the MPI that it found. */
#include "base/config.h"
#include "base/hooks.h"
#include "door/door.h"
#include "shim/aware.h"
#include "shim/lifecycle.h"
#include "shim/peer.h"
#include "shim/stream.h"
#include "shim/support.h"
#include "shim/types.h"
#include "slots.h"

#include <stddef.h>

__attribute__((visibility("default"))) void *const *tempi_shim_load(const struct tempi_door *door,
                                                                      const char **reason)
{
    if (door->digest != TEMPI_SLOT_DIGEST) {
        *reason = "libtempi.so and the engine for this MPI come from different builds";
        return NULL;
    }
    *reason = tempi_mpi_bind(door);
    if (*reason != NULL)
        return NULL;
    tempi_aware_find(door);
    tempi_support_find(door);
    if (!door->off) {
        tempi_shim_hooks.datatype_layout = tempi_datatype_layout_of;
        tempi_shim_hooks.comm_set_stream = tempi_stream_set;
        tempi_shim_hooks.comm_peer = tempi_peer_tell;
        tempi_shim_hooks.comm_look = tempi_peer_look;
        tempi_lifecycle_loaded();
    }
    return tempi_shim_entries(door);
}
