/* identity.c: identifies the card and driver that a calibration of device memory belongs to. */
#include "base/text.h"
#include "cuda/driver.h"

#include <stdio.h>
#include <string.h>

/* The driver's version from its kernel module, "NVRM version: NVIDIA UNIX x86_64 Kernel Module
 * 570.86.10  date": the first word of digits and dots only. CUDA reports only its API's version. */
static void find_driver(char *out, size_t size)
{
    char text[1024];
    if (!tempi_text_read("/proc/driver/nvidia/version", text, sizeof text))
        return;
    text[strcspn(text, "\n")] = '\0';
    char *rest = NULL;
    for (char *word = strtok_r(text, " \t", &rest); word; word = strtok_r(NULL, " \t", &rest))
        if (strchr(word, '.') && strspn(word, "0123456789.") == strlen(word)) {
            snprintf(out, size, "%s", word);
            return;
        }
}

int tempi_machine_add_gpu(tempi_machine *machine, int32_t ordinal)
{
    tempi_gpu_device device;
    int version = 0;
    if (!machine)
        return TEMPI_ERR_ARG;
    if (tempi_cuda_probe() != TEMPI_CUDA_UP)
        return TEMPI_ERR_UNSUPPORTED;
    const int status = tempi_gpu_device_query(ordinal, &device);
    if (status != TEMPI_OK)
        return status;
    if (tempi_cu.DriverGetVersion)
        (void)tempi_cu.DriverGetVersion(&version);
    memset(machine->gpu, 0, sizeof machine->gpu);
    memset(machine->driver, 0, sizeof machine->driver);
    machine->cuda = version;
    machine->emulated = tempi_cuda_emulated() || strstr(device.name, "EMULATED") != NULL;
    if (machine->emulated) { /* all emulated devices are alike */
        snprintf(machine->gpu, sizeof machine->gpu, "EMULATED device (CUDA on the CPU)");
        return TEMPI_OK;
    }
    snprintf(machine->gpu, sizeof machine->gpu, "%s",
             device.name[0] ? device.name : "a GPU without a name");
    find_driver(machine->driver, sizeof machine->driver);
    return TEMPI_OK;
}
