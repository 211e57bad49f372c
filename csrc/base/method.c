#include "base/device_methods.h"

#include <stddef.h>
#include <string.h>

static const char *const names[] = {
    [TEMPI_METHOD_HOST] = "host",
#define NAME(none, number, name, how) [TEMPI_METHOD_##number] = #name,
    TEMPI_DEVICE_METHODS(NAME, )
#undef NAME
        [TEMPI_METHOD_LIBRARY] = "library",
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
