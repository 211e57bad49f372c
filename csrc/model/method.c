#include "model/method.h"
#include "base/config.h"
#include "base/log.h"
#include "pack/pack.h"

/* From what the parts do, not yet from measurements: a kernel that writes over the bus saves the copy
 * and its latency, which decides while messages are short; a copy engine moves long ones faster than
 * kernels' stores do; and in pieces the two overlap, once a piece is long enough to be worth its
 * launch. */
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

int tempi_rule_method(int64_t bytes, int32_t aware)
{
    return automatic(bytes, aware != 0);
}

bool tempi_method_is_forced(bool aware)
{
    const tempi_settings *c = &tempi_config;
    return imposed >= 0 ||
           (!c->automatic && (c->oneshot || c->staged || c->pipelined || (c->device && aware)));
}

int tempi_method_choose(int64_t bytes, bool dense, bool aware)
{
    if (dense)
        return aware ? TEMPI_ON_HOST : TEMPI_STAGED;
    if (imposed >= 0 && (aware || imposed > TEMPI_ON_DEVICE))
        return imposed;
    if (tempi_config.automatic)
        return automatic(bytes, aware);
    if (tempi_config.oneshot)
        return TEMPI_ONE_SHOT;
    if (tempi_config.device) {
        if (aware)
            return TEMPI_ON_DEVICE;
        TEMPI_WARN_ONCE("TEMPI_DATATYPE_DEVICE needs an MPI library that takes device addresses; this one does not "
                        "(TEMPI_CUDA_AWARE=1 says that it does)");
    }
    if (tempi_config.staged)
        return TEMPI_STAGED;
    return tempi_config.pipelined ? TEMPI_PIPELINED : automatic(bytes, aware);
}
