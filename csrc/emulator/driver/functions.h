/* functions.h: the emulated driver functions, by their exported names.
 *
 * Counters and injected failures ignore the version suffix: cuMemAlloc_v2 is cuMemAlloc. */
#ifndef TEMPI_EMULATOR_FUNCTIONS_H
#define TEMPI_EMULATOR_FUNCTIONS_H

/* clang-format off */
#define TEMPI_EMU_TABLE(X)                                                                         \
    X(cuInit) X(cuDriverGetVersion) X(cuGetProcAddress) X(cuGetProcAddress_v2)                     \
    X(cuGetErrorName) X(cuGetErrorString)                                                          \
    X(cuDeviceGet) X(cuDeviceGetCount) X(cuDeviceGetName) X(cuDeviceGetAttribute)                  \
    X(cuDeviceGetUuid_v2) X(cuDeviceTotalMem_v2)                                                   \
    X(cuDeviceGetDefaultMemPool) X(cuDeviceCanAccessPeer)                                          \
    X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease_v2)                                    \
    X(cuDevicePrimaryCtxGetState)                                                                  \
    X(cuDevicePrimaryCtxReset_v2)                                                                  \
    X(cuCtxCreate_v2) X(cuCtxCreate_v3) X(cuCtxCreate_v4) X(cuCtxDestroy_v2) X(cuCtxGetId)         \
    X(cuCtxGetCurrent) X(cuCtxSetCurrent) X(cuCtxPushCurrent_v2) X(cuCtxPopCurrent_v2)             \
    X(cuGreenCtxCreate) X(cuGreenCtxDestroy) X(cuCtxFromGreenCtx)                                  \
    X(cuIpcGetMemHandle) X(cuIpcOpenMemHandle_v2) X(cuIpcCloseMemHandle)                           \
    X(cuCtxGetDevice) X(cuCtxSynchronize)                                                          \
    X(cuCtxEnablePeerAccess) X(cuCtxDisablePeerAccess)                                             \
    X(cuMemRangeGetAttribute)                                                                      \
    X(cuPointerGetAttribute) X(cuPointerGetAttributes)                                             \
    X(cuMemGetInfo_v2) X(cuMemAlloc_v2) X(cuMemFree_v2)                                            \
    X(cuMemAllocManaged)                                                                           \
    X(cuMemHostAlloc) X(cuMemFreeHost) X(cuMemHostRegister_v2)                                     \
    X(cuMemHostUnregister) X(cuMemHostGetDevicePointer_v2)                                         \
    X(cuMemAllocAsync) X(cuMemFreeAsync)                                                           \
    X(cuMemCreate) X(cuMemRelease) X(cuMemAddressReserve)                                          \
    X(cuMemAddressFree) X(cuMemMap) X(cuMemUnmap) X(cuMemSetAccess)                                \
    X(cuMemcpy) X(cuMemcpyAsync) X(cuMemcpyBatchAsync_v2) X(cuMemcpyHtoD_v2) X(cuMemcpyDtoH_v2) X(cuMemcpyDtoD_v2)          \
    X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoHAsync_v2) X(cuMemcpyDtoDAsync_v2)                        \
    X(cuMemcpy2DAsync_v2)                                                                          \
    X(cuMemcpy3DAsync_v2)                                                                          \
    X(cuMemsetD8_v2) X(cuMemsetD8Async)                                                            \
    X(cuStreamCreate) X(cuStreamDestroy_v2) X(cuStreamQuery)                                       \
    X(cuStreamCreateWithPriority) X(cuStreamGetPriority) X(cuCtxGetStreamPriorityRange)            \
    X(cuStreamWriteValue32_v2)                                                                     \
    X(cuStreamBeginCapture_v2) X(cuStreamEndCapture) X(cuStreamIsCapturing)                        \
    X(cuGraphGetNodes) X(cuGraphDestroy)                                                           \
    X(cuStreamSynchronize) X(cuStreamWaitEvent)                                                    \
    X(cuLaunchHostFunc)                                                                            \
    X(cuThreadExchangeStreamCaptureMode)                                                           \
    X(cuEventCreate) X(cuEventDestroy_v2) X(cuEventRecord)                                         \
    X(cuEventQuery) X(cuEventSynchronize) X(cuEventElapsedTime) X(cuEventElapsedTime_v2)           \
    X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction)                                   \
    X(cuModuleGetGlobal_v2) X(cuFuncLoad)                                                       \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor)                                                                        \
    X(cuLaunchKernel)
/* clang-format on */

#define TEMPI_EMU_INDEX(name) EMU_##name,
typedef enum { TEMPI_EMU_TABLE(TEMPI_EMU_INDEX) TEMPI_EMU_FUNCTIONS } tempi_emu_function;
#undef TEMPI_EMU_INDEX

#endif
