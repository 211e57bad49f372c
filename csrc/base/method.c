#include "tempi.h"

#include <stddef.h>
#include <string.h>

static const char *const names[] = {
    [TEMPI_METHOD_HOST] = "host",           [TEMPI_METHOD_DEVICE] = "device",
    [TEMPI_METHOD_ONE_SHOT] = "oneshot",    [TEMPI_METHOD_STAGED] = "staged",
    [TEMPI_METHOD_PIPELINED] = "pipelined", [TEMPI_METHOD_LIBRARY] = "library",
};

const char *tempi_method_name(int32_t method)
{
    return method >= 0 && method < TEMPI_METHODS ? names[method] : NULL;
}

int32_t tempi_method_number(const char *name)
{
    for (int32_t m = 0; m < TEMPI_METHODS; ++m)
        if (strcmp(name, names[m]) == 0)
            return m;
    return -1;
}
