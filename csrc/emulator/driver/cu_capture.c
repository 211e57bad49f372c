/* cu_capture.c: graphs are not emulated; a thread may still set its capture mode. */
#include "emulator/core/emulator.h"

CUresult TEMPI_EMU_API cuThreadExchangeStreamCaptureMode(int *mode);
CUresult TEMPI_EMU_API cuThreadExchangeStreamCaptureMode(int *mode)
{
    static _Thread_local int current; /* 0: global */
    const CUresult result = tempi_emu_enter(EMU_cuThreadExchangeStreamCaptureMode, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (mode == NULL || *mode < 0 || *mode > 2)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    const int before = current;
    current = *mode;
    *mode = before;
    return tempi_emu_leave(CUDA_SUCCESS);
}
