#include "choose/device_rule.h"
#include "base/config.h"
#include "base/log.h"
#include "pack/pack.h"

/* From what the parts do, not yet from measurements: a kernel that writes over the bus saves the
 * copy and its latency, which decides while messages are short; a copy engine moves long ones
 * faster than kernels' stores do; and in pieces the two overlap, once a piece is long enough to be
 * worth its launch. */
enum { KIB = 1 << 10, MIB = 1 << 20 };
enum { ONE_SHOT_MOST = 256 * KIB, STAGED_MOST = 4 * MIB, AWARE_ONE_SHOT_MOST = 16 * KIB };

static int automatic(int64_t bytes, bool aware)
{
    if (aware)
        return bytes <= AWARE_ONE_SHOT_MOST ? TEMPI_ONE_SHOT : TEMPI_ON_DEVICE;
    if (bytes <= ONE_SHOT_MOST)
        return TEMPI_ONE_SHOT;
    return bytes <= STAGED_MOST ? TEMPI_STAGED : TEMPI_PIPELINED;
}

static _Atomic int imposed = -1;

void tempi_device_method_impose(int32_t method)
{
    imposed = method;
}

int tempi_rule_method(int64_t bytes, int32_t contiguous, int32_t aware)
{
    if (contiguous)
        return aware ? TEMPI_ON_HOST : TEMPI_STAGED;
    return automatic(bytes, aware != 0);
}

/* By a setting, or for measuring; -1: nobody asks. */
static int asked(bool aware)
{
    if (imposed >= 0 && (aware || imposed > TEMPI_ON_DEVICE))
        return imposed;
    switch (tempi_config.method) {
    case TEMPI_METHOD_DEVICE: return aware ? TEMPI_ON_DEVICE : -1;
    case TEMPI_METHOD_ONE_SHOT: return TEMPI_ONE_SHOT;
    case TEMPI_METHOD_STAGED: return TEMPI_STAGED;
    case TEMPI_METHOD_PIPELINED: return TEMPI_PIPELINED;
    default: return -1; /* auto, and library, which is asked for before (tempi_method_left) */
    }
}

bool tempi_method_left(void)
{
    return imposed < 0 && tempi_config.method == TEMPI_METHOD_LIBRARY;
}

static bool staged_if_dense(void)
{
    return imposed >= 0 ? imposed > TEMPI_ON_DEVICE
                        : tempi_config.contiguous_staged && !tempi_config.contiguous_automatic;
}

bool tempi_method_is_forced(bool dense, bool aware)
{
    return imposed >= 0 || (dense ? staged_if_dense() : asked(aware) >= 0);
}

int tempi_method_choose(int64_t bytes, bool dense, bool aware)
{
    if (dense)
        return aware && !staged_if_dense() ? TEMPI_ON_HOST : TEMPI_STAGED;
    const int method = asked(aware);
    if (!aware &&
        (tempi_config.method == TEMPI_METHOD_DEVICE || tempi_config.method == TEMPI_METHOD_LIBRARY))
        TEMPI_WARN_ONCE("TEMPI_METHOD=%s needs an MPI library that takes device addresses; this "
                        "one does not (TEMPI_CUDA_AWARE=1 says that it does)",
                        tempi_config.method == TEMPI_METHOD_DEVICE ? "device" : "library");
    return method >= 0 ? method : automatic(bytes, aware);
}

int tempi_method_choose_part(int64_t bytes)
{
    const int method = asked(false);
    return method >= 0 ? method : automatic(bytes, false);
}
