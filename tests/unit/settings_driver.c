/* settings_driver.c: prints the settings that the engine reads from the environment; for
 * test_settings.py. */
#include "base/config.h"

#include "tempi.h"

#include <stdio.h>

static const char *name(int method)
{
    switch (method) {
    case TEMPI_METHOD_LIBRARY: return "library";
    case TEMPI_METHOD_DEVICE: return "device";
    case TEMPI_METHOD_ONE_SHOT: return "oneshot";
    case TEMPI_METHOD_STAGED: return "staged";
    case TEMPI_METHOD_PIPELINED: return "pipelined";
    case TEMPI_METHODS: return "auto";
    default: return "none";
    }
}

int main(void)
{
    tempi_config_load();
    const char *given_by;
    const char *isa = tempi_config_find("TEMPI_ISA", &given_by);
    printf("method %s locality %d isa %s collectives %d\n", name(tempi_config.method),
           tempi_config.locality, isa ? isa : "none", tempi_config.collectives);
    return 0;
}
