/* cu_proc.c: looks up functions by name, and errors by number. */
#include "emulator/core/emulator.h"

static CUresult find(tempi_emu_function function, const char *symbol, void **address,
                     uint64_t flags, int *status)
{
    const CUresult result = tempi_emu_enter(function, EMU_ALWAYS, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (symbol == NULL || address == NULL || flags > 2)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    /* Variants with per-thread default streams are not emulated. */
    *address = flags == 2 ? NULL : tempi_emu_function_find(symbol);
    if (status != NULL)
        *status = *address != NULL ? 0 : 1;
    return tempi_emu_leave(*address != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
}

CUresult TEMPI_EMU_API cuGetProcAddress(const char *symbol, void **address, int version,
                                        uint64_t flags);
CUresult TEMPI_EMU_API cuGetProcAddress(const char *symbol, void **address, int version,
                                        uint64_t flags)
{
    const bool itself = symbol != NULL && strcmp(symbol, "cuGetProcAddress") == 0;
    /* Programs older than CUDA 12 call it without the last argument. */
    const char *const wanted = itself && version < 12000 ? "cuGetProcAddress_v1" : symbol;
    return find(EMU_cuGetProcAddress, wanted, address, flags, NULL);
}

CUresult TEMPI_EMU_API cuGetProcAddress_v2(const char *symbol, void **address, int version,
                                           uint64_t flags, int *status);
CUresult TEMPI_EMU_API cuGetProcAddress_v2(const char *symbol, void **address, int version,
                                           uint64_t flags, int *status)
{
    const bool itself = symbol != NULL && strcmp(symbol, "cuGetProcAddress") == 0;
    const char *const wanted = itself && version < 12000 ? "cuGetProcAddress_v1" : symbol;
    return find(EMU_cuGetProcAddress_v2, wanted, address, flags, status);
}

static const struct {
    int value;
    const char *name;
    const char *text;
} results[] = {
#define TEMPI_EMU_ROW(name, value, text) {value, #name, text},
    TEMPI_EMU_RESULTS(TEMPI_EMU_ROW)
#undef TEMPI_EMU_ROW
};

static CUresult describe(tempi_emu_function function, CUresult error, const char **out, bool name)
{
    const CUresult result = tempi_emu_enter(function, EMU_ALWAYS, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    *out = NULL;
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (results[i].value == error)
            *out = name ? results[i].name : results[i].text;
    return tempi_emu_leave(*out != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult TEMPI_EMU_API cuGetErrorName(CUresult error, const char **name);
CUresult TEMPI_EMU_API cuGetErrorName(CUresult error, const char **name)
{
    return describe(EMU_cuGetErrorName, error, name, true);
}

CUresult TEMPI_EMU_API cuGetErrorString(CUresult error, const char **text);
CUresult TEMPI_EMU_API cuGetErrorString(CUresult error, const char **text)
{
    return describe(EMU_cuGetErrorString, error, text, false);
}
