/* settings_driver.c: what the environment says, as the engine takes it; for test_settings.py. */
#include "base/config.h"

#include <stdio.h>

int main(void)
{
    tempi_config_load();
    const char *given_by;
    const char *isa = tempi_config_find("TEMPI_ISA", &given_by);
    printf("method %d locality %d isa %s\n", tempi_config.method, tempi_config.locality,
           isa ? isa : "none");
    return 0;
}
