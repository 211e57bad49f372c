#include "choose/device_rule.h"
#include "base/config.h"
#include "base/device_methods.h"
#include "base/log.h"

/* A kernel that writes over the bus saves the copy and its latency, which dominates for short
 * messages. A copy engine moves long ones faster than kernels' stores (H200: 54 and 51 GB/s), few
 * rows at once. In pieces the two overlap, once a piece is long enough to pay for its launch. */
enum { KIB = 1 << 10, MIB = 1 << 20 };
enum { ONE_SHOT_MOST = 256 * KIB, STAGED_MOST = 4 * MIB, AWARE_ONE_SHOT_MOST = 16 * KIB };

static tempi_method automatic(int64_t bytes, bool few_rows, bool cuda_aware)
{
    if (cuda_aware)
        return bytes <= AWARE_ONE_SHOT_MOST ? TEMPI_METHOD_ONE_SHOT : TEMPI_METHOD_DEVICE;
    if (bytes <= ONE_SHOT_MOST || few_rows)
        return TEMPI_METHOD_ONE_SHOT;
    return bytes <= STAGED_MOST ? TEMPI_METHOD_STAGED : TEMPI_METHOD_PIPELINED;
}

static _Atomic int forced = -1;

void tempi_device_method_force(int32_t method)
{
    forced = method;
}

int tempi_rule_method(int64_t bytes, int32_t contiguous, int32_t cuda_aware)
{
    if (contiguous)
        return cuda_aware ? TEMPI_METHOD_LIBRARY : TEMPI_METHOD_STAGED;
    return (int)automatic(bytes, false, cuda_aware != 0);
}

/* The method forced by a setting or a measurement; -1: none. */
static int asked(bool cuda_aware)
{
    if (forced >= 0 && (cuda_aware || tempi_method_through_host(forced)))
        return forced;
    const int set = tempi_config.method; /* library was handled before (tempi_device_rule_leaves) */
    return tempi_method_through_host(set) || (set == TEMPI_METHOD_DEVICE && cuda_aware) ? set : -1;
}

bool tempi_device_rule_leaves(void)
{
    return forced < 0 && tempi_config.method == TEMPI_METHOD_LIBRARY;
}

static bool staged_if_dense(void)
{
    return forced >= 0 ? tempi_method_through_host(forced)
                       : tempi_config.contiguous_staged && !tempi_config.contiguous_automatic;
}

bool tempi_device_rule_is_forced(bool dense, bool cuda_aware)
{
    return forced >= 0 || (dense ? staged_if_dense() : asked(cuda_aware) >= 0);
}

tempi_method tempi_device_rule(int64_t bytes, bool dense, bool few_rows, bool cuda_aware)
{
    if (dense)
        return cuda_aware && !staged_if_dense() ? TEMPI_METHOD_LIBRARY : TEMPI_METHOD_STAGED;
    const int method = asked(cuda_aware);
    if (!cuda_aware &&
        (tempi_config.method == TEMPI_METHOD_DEVICE || tempi_config.method == TEMPI_METHOD_LIBRARY))
        TEMPI_WARN_ONCE("TEMPI_METHOD=%s needs a CUDA-aware MPI library and this one is not: the "
                        "setting is ignored (if it is, set TEMPI_CUDA_AWARE=1)",
                        tempi_config.method == TEMPI_METHOD_DEVICE ? "device" : "library");
    return method >= 0 ? (tempi_method)method : automatic(bytes, few_rows, cuda_aware);
}

tempi_method tempi_device_rule_of_packing(int64_t bytes, bool few_rows)
{
    const int method = asked(false);
    return method >= 0 ? (tempi_method)method : automatic(bytes, few_rows, false);
}
