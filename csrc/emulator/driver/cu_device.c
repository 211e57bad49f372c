/* cu_device.c: properties of the emulated devices. */
#include "emulator/core/emulator.h"

#include <stdlib.h>

typedef struct {
    int attribute;
    int value;
} property;

/* Numbers of CUdevice_attribute. Few and small multiprocessors, so that grids stay small here. */
static const property properties[] = {
    {1, 1024},       /* threads per block */
    {2, 1024},       /* block x */
    {3, 1024},       /* block y */
    {4, 64},         /* block z */
    {5, INT32_MAX},  /* grid x */
    {6, 65535},      /* grid y */
    {7, 65535},      /* grid z */
    {8, 49152},      /* shared memory per block */
    {9, 65536},      /* constant memory */
    {10, 32},        /* warp */
    {11, INT32_MAX}, /* pitch */
    {12, 65536},     /* registers per block */
    {13, 1000},      /* clock, kHz */
    {14, 512},       /* texture alignment */
    {16, 4},         /* multiprocessors */
    {19, 1},         /* can map host memory */
    {31, 1},         /* concurrent kernels */
    {36, 1000},      /* memory clock, kHz */
    {37, 64},        /* bus width */
    {38, 1 << 20},   /* L2 */
    {39, 2048},      /* threads per multiprocessor */
    {40, 2},         /* copy engines */
    {41, 1},         /* unified addressing */
    {78, 1},         /* stream priorities */
    {79, 1},         /* L1 for global memory */
    {80, 1},         /* L1 for local memory */
    {81, 233472},    /* shared memory per multiprocessor */
    {82, 65536},     /* registers per multiprocessor */
    {83, 1},         /* managed memory */
    {89, 1},         /* concurrent managed access */
    {91, 1},         /* host pointers of registered memory */
    {90, 1},         /* preemption */
    {91, 1},         /* registered memory under the host's pointer */
    {97, 232448},    /* shared memory per block, opt-in */
    {99, 1},         /* host register */
    {102, 1},        /* virtual memory management */
    {106, 32},       /* blocks per multiprocessor */
    {111, 1024},     /* reserved shared memory */
    {115, 1},        /* memory pools */
};

static bool valid(CUdevice device)
{
    return device >= 0 && device < tempi_emu_option.devices;
}

static CUresult enter(tempi_emu_function function, CUdevice device)
{
    const CUresult result = tempi_emu_enter(function, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    return valid(device) ? CUDA_SUCCESS : tempi_emu_leave(CUDA_ERROR_INVALID_DEVICE);
}

CUresult TEMPI_EMU_API cuDriverGetVersion(int *version);
CUresult TEMPI_EMU_API cuDriverGetVersion(int *version)
{
    const CUresult result = tempi_emu_enter(EMU_cuDriverGetVersion, EMU_ALWAYS, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    *version = tempi_emu_option.driver;
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuDeviceGetCount(int *count);
CUresult TEMPI_EMU_API cuDeviceGetCount(int *count)
{
    const CUresult result = tempi_emu_enter(EMU_cuDeviceGetCount, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    *count = tempi_emu_option.devices;
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuDeviceGet(CUdevice *device, int ordinal);
CUresult TEMPI_EMU_API cuDeviceGet(CUdevice *device, int ordinal)
{
    const CUresult result = enter(EMU_cuDeviceGet, ordinal);
    if (result != CUDA_SUCCESS)
        return result;
    *device = ordinal;
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuDeviceGetName(char *name, int length, CUdevice device);
CUresult TEMPI_EMU_API cuDeviceGetName(char *name, int length, CUdevice device)
{
    const CUresult result = enter(EMU_cuDeviceGetName, device);
    if (result != CUDA_SUCCESS)
        return result;
    snprintf(name, (size_t)length, "tempi %s device %d (CUDA on the CPU)",
             tempi_emu_option.rehearsal ? "REHEARSAL" : "EMULATED", device);
    return tempi_emu_leave(CUDA_SUCCESS);
}

static int attribute_value(int attribute, CUdevice device)
{
    if (attribute == 88) /* pageable memory access */
        return tempi_emu_option.pageable_access;
    if (attribute == 33) /* PCI bus */
        return device + 1;
    if (attribute == 75)
        return tempi_emu_option.capability / 10;
    if (attribute == 76)
        return tempi_emu_option.capability % 10;
    for (size_t i = 0; i < sizeof properties / sizeof *properties; i++)
        if (properties[i].attribute == attribute)
            return properties[i].value;
    return 0;
}

CUresult TEMPI_EMU_API cuDeviceGetAttribute(int *value, int attribute, CUdevice device);
CUresult TEMPI_EMU_API cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    const CUresult result = enter(EMU_cuDeviceGetAttribute, device);
    if (result != CUDA_SUCCESS)
        return result;
    if (attribute < 1 || attribute > 200)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    *value = attribute_value(attribute, device);
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuDeviceCanAccessPeer(int *access, CUdevice device, CUdevice peer);
CUresult TEMPI_EMU_API cuDeviceCanAccessPeer(int *access, CUdevice device, CUdevice peer)
{
    const CUresult result = enter(EMU_cuDeviceCanAccessPeer, device);
    if (result != CUDA_SUCCESS)
        return result;
    if (!valid(peer))
        return tempi_emu_leave(CUDA_ERROR_INVALID_DEVICE);
    *access = device != peer; /* CUDA driver API: not to itself */
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuDeviceGetUuid_v2(tempi_emu_uuid *out, CUdevice device);
CUresult TEMPI_EMU_API cuDeviceGetUuid_v2(tempi_emu_uuid *out, CUdevice device)
{
    const CUresult result = enter(EMU_cuDeviceGetUuid_v2, device);
    if (result != CUDA_SUCCESS)
        return result;
    memcpy(out->bytes, "tempi-emulated-", 15);
    out->bytes[15] = (char)device;
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);
CUresult TEMPI_EMU_API cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    const CUresult result = enter(EMU_cuDeviceTotalMem_v2, device);
    if (result != CUDA_SUCCESS)
        return result;
    *bytes = tempi_emu_option.memory;
    return tempi_emu_leave(CUDA_SUCCESS);
}
