/* Fast path of MPI_Pack and MPI_Unpack for types that the library is known to handle faster: a
 * few nanoseconds before calls that take some sixty. */
#ifndef TEMPI_SHIM_PACKING_H
#define TEMPI_SHIM_PACKING_H

#include "base/stats.h"
#include "choose/autotune.h"
#include "choose/online_tuning.h"
#include "memory/kind.h"
#include "shim/type/types.h"

/* True: leave the call to the library. Counts it if its type has gaps. */
static inline bool tempi_packing_falls_back(MPI_Datatype datatype, MPI_Count count,
                                            tempi_operation operation)
{
    const tempi_type *type = tempi_type_cached(datatype);
    int64_t bytes;
    if (!type || tempi_memory_mixed || tempi_online_tuning || count <= 0 ||
        __builtin_mul_overflow(count, type->size, &bytes))
        return false;
    if (type->layout->dense)
        return bytes > 0;
    const tempi_choices *choices = &type->chooser.choices[operation][0];
    if (!tempi_autotune_is_settled(choices, bytes) || tempi_autotune_choice(choices, bytes))
        return false;
    tempi_thread_cache *mine = tempi_stats_mine();
    tempi_stat_add_to(mine, TEMPI_STAT_calls_seen, 1);
    tempi_stat_add_to(mine, TEMPI_STAT_fallback_rule, 1);
    return true;
}

#endif
