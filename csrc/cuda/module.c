/* module.c: loads the kernels on a device. One image suffices: the machine code for the newest
 * architecture that the device can run (same major version, no newer minor one; CUDA Programming
 * Guide, "Binary Compatibility"), else the PTX, which the driver compiles. */
#include "base/log.h"
#include "base/stats.h"
#include "cuda/device.h"
#include "cuda/kernels.h"

#include <stdlib.h>
#include <string.h>

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

static bool is_text(const tempi_kernel_image *image)
{
    return strcmp(image->target, "ptx") == 0;
}

/* 10 * major + minor of "sm_90"; 0 for PTX and for architecture-specific images ("sm_90a"). */
static int target_of(const tempi_kernel_image *image)
{
    char *end;
    if (strncmp(image->target, "sm_", 3) != 0)
        return 0;
    const long number = strtol(image->target + 3, &end, 10);
    return *end == '\0' && number > 0 ? (int)number : 0;
}

static const tempi_kernel_image *best_code(int capability)
{
    const tempi_kernel_image *best = NULL;
    for (int i = 0; i < tempi_kernel_image_count; ++i) {
        const int target = target_of(&tempi_kernel_images[i]);
        if (target && target / 10 == capability / 10 && target <= capability &&
            (!best || target > target_of(best)))
            best = &tempi_kernel_images[i];
    }
    return best;
}

static const tempi_kernel_image *text(void)
{
    for (int i = 0; i < tempi_kernel_image_count; ++i)
        if (is_text(&tempi_kernel_images[i]))
            return &tempi_kernel_images[i];
    return NULL;
}

const char *tempi_cuda_kernels_target(int capability)
{
    const tempi_kernel_image *image = tempi_cuda_emulated() ? NULL : best_code(capability);
    if (!image)
        image = text();
    return image ? image->target : NULL;
}

/* An image that does not fit this device or driver is not an error: another one may. */
static bool is_not_for_it(int result)
{
    return result == TEMPI_CUDA_INVALID_IMAGE || result == TEMPI_CUDA_NO_BINARY ||
           result == TEMPI_CUDA_INVALID_PTX || result == TEMPI_CUDA_UNSUPPORTED_PTX;
}

static int load_image(tempi_cuda_device *device, const tempi_kernel_image *image)
{
    if (!image)
        return TEMPI_ERR_UNSUPPORTED;
    const int result = tempi_cu.ModuleLoadData(&device->module, image->data);
    if (is_not_for_it(result))
        return TEMPI_ERR_UNSUPPORTED;
    int status = tempi_cuda_check(result, "cuModuleLoadData");
    /* There is no alternative to the kernels: retry once. */
    if (status == TEMPI_ERR_DEVICE && tempi_cuda_up())
        status = TEMPI_CU(ModuleLoadData, &device->module, image->data);
    if (status == TEMPI_OK)
        TEMPI_LOG(TEMPI_LOG_INFO, "device %d: kernels for %s", device->ordinal, image->target);
    return status;
}

/* With lazy loading a kernel is loaded at its first use, which may wait for all kernels that run:
 * for ever, if one of them waits for a message (CUDA Programming Guide, "Lazy Loading", concurrent
 * execution). So all of them are loaded with the module. A function that cannot be found now is
 * looked up again at its launch. */
static void load_functions(tempi_cuda_device *device)
{
    for (int i = 0; i < TEMPI_KERNEL_COUNT; ++i) {
        tempi_cuda_function *function = &device->functions[i];
        int blocks = 0;
        if (tempi_cu.ModuleGetFunction(function, device->module, tempi_kernel_names[i]) !=
            TEMPI_CUDA_SUCCESS)
            *function = NULL;
        if (*function && tempi_cu.FuncLoad)
            (void)tempi_cu.FuncLoad(*function);
        if (*function && tempi_cu.OccupancyMaxActiveBlocksPerMultiprocessor &&
            tempi_cu.OccupancyMaxActiveBlocksPerMultiprocessor(
                &blocks, *function, TEMPI_KERNEL_BLOCK, 0) == TEMPI_CUDA_SUCCESS)
            device->resident_blocks[i] = (unsigned)(blocks * device->multiprocessors);
    }
}

/* Caller holds `loading`. Only running out of memory is retried later. */
static int load(tempi_cuda_device *device)
{
    if (device->kernels_tried)
        return device->kernels_status;
    int status = TEMPI_ERR_UNSUPPORTED;
    if (!device->functions)
        device->functions = calloc(TEMPI_KERNEL_COUNT + 1, sizeof *device->functions);
    if (!device->resident_blocks)
        device->resident_blocks = calloc(TEMPI_KERNEL_COUNT + 1, sizeof *device->resident_blocks);
    if (!device->functions || !device->resident_blocks)
        return TEMPI_ERR_MEMORY;
    if (tempi_cu.ModuleLoadData && tempi_cu.ModuleGetFunction && tempi_cu.LaunchKernel)
        status = load_image(device, best_code(device->capability));
    if (status != TEMPI_OK && status != TEMPI_ERR_MEMORY && tempi_cu.ModuleLoadData &&
        tempi_cuda_up())
        status = load_image(device, text());
    if (status == TEMPI_ERR_MEMORY)
        return status;
    if (status != TEMPI_OK) {
        TEMPI_LOG(TEMPI_LOG_WARN, "no kernels for device %d (compute capability %d.%d)",
                  device->ordinal, device->capability / 10, device->capability % 10);
        status = TEMPI_ERR_UNSUPPORTED;
    } else {
        load_functions(device);
    }
    device->kernels_status = status;
    device->kernels_tried = true;
    return status;
}

static int find(tempi_cuda_device *device, int kernel)
{
    int status = load(device);
    if (status == TEMPI_OK && !device->functions[kernel])
        status = TEMPI_CU(ModuleGetFunction, &device->functions[kernel], device->module,
                          tempi_kernel_names[kernel]);
    if (status == TEMPI_ERR_UNSUPPORTED)
        tempi_stat_add(TEMPI_STAT_refused_kernels, 1);
    return status;
}

int tempi_cuda_function_get(tempi_cuda_device *device, int kernel, tempi_cuda_function *out)
{
    pthread_mutex_lock(&loading);
    const int status = find(device, kernel);
    if (status == TEMPI_OK)
        *out = device->functions[kernel];
    pthread_mutex_unlock(&loading);
    return status;
}

static int load_entered(tempi_cuda_device *device)
{
    tempi_cuda_entry entry;
    int status = tempi_cuda_enter_relaxed(device, &entry);
    if (status != TEMPI_OK)
        return status;
    status = load(device);
    tempi_cuda_leave(&entry);
    return status;
}

int tempi_cuda_kernels_ready(tempi_cuda_device *device)
{
    pthread_mutex_lock(&loading);
    const int status = device->kernels_tried ? device->kernels_status : load_entered(device);
    pthread_mutex_unlock(&loading);
    if (status == TEMPI_ERR_UNSUPPORTED)
        tempi_stat_add(TEMPI_STAT_refused_kernels, 1);
    return status;
}
