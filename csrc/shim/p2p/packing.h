/* Fast path of MPI_Pack and MPI_Unpack for types that the library is known to handle faster: a
 * few nanoseconds before calls that take some sixty. */
#ifndef TEMPI_SHIM_PACKING_H
#define TEMPI_SHIM_PACKING_H

#include "base/stats.h"
#include "base/thread.h"
#include "choose/online_tuning.h"
#include "memory/kind.h"
#include "shim/type/types.h"

/* True: leave the call to the library, as the last one with that type and count. Counts it, unless
 * the type has no gaps. It calls nothing: the entry then passes the arguments on in their
 * registers. */
__attribute__((always_inline)) static inline bool tempi_packing_is_left(MPI_Datatype datatype,
                                                                        MPI_Count count,
                                                                        tempi_operation operation)
{
    const tempi_type *type = tempi_type_at_home(datatype);
    uint64_t *const passed = tempi_stats_passed();
    if (!passed || !type || count == 0 ||
        __atomic_load_n(&type->left[operation], __ATOMIC_RELAXED) != count || tempi_memory_mixed ||
        tempi_online_tuning)
        return false;
    __atomic_store_n(passed, *passed + type->left_counts, __ATOMIC_RELAXED);
    return true;
}

/* After it: the same for any count, which is then the type's last one. Counts it if its type has
 * gaps. */
bool tempi_packing_falls_back(MPI_Datatype datatype, MPI_Count count, tempi_operation operation);

#endif
