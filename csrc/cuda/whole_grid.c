/* whole_grid.c: whether a launch takes its whole grid (kernels.h). */
#include "cuda/plan.h"

bool tempi_launch_is_whole(const tempi_launch *launch, unsigned blocks, int64_t cache)
{
    const uint64_t round = (uint64_t)blocks * launch->block;
    const bool large = cache > 0 && launch->bytes >= (uint64_t)cache / 2;
    if (round == 0 || launch->words <= round || launch->whole < blocks)
        return false;
    switch (launch->when) {
    case TEMPI_WHOLE_ALWAYS: return true;
    case TEMPI_WHOLE_LARGE: return large;
    case TEMPI_WHOLE_SHORT_OR_LARGE: return large || launch->words <= 2 * round;
    case TEMPI_WHOLE_LONG: return launch->words >= 3 * round;
    case TEMPI_WHOLE_NEVER: break;
    }
    return false;
}
