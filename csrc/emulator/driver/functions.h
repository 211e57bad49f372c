/* functions.h: the driver's functions that exist here, as the library exports them.
 *
 * A name's version suffix is not counted: cuMemAlloc_v2 is counted and failed as cuMemAlloc.
 */
#ifndef TEMPI_EMULATOR_FUNCTIONS_H
#define TEMPI_EMULATOR_FUNCTIONS_H

/* clang-format off */
#define TEMPI_EMU_TABLE(X)                                                                         \
    X(cuInit) X(cuDriverGetVersion) X(cuGetProcAddress) X(cuGetProcAddress_v2)                     \
    X(cuGetErrorName) X(cuGetErrorString)                                                          \
    X(cuDeviceGet) X(cuDeviceGetCount) X(cuDeviceGetName) X(cuDeviceGetAttribute)                  \
    X(cuDeviceGetUuid) X(cuDeviceGetUuid_v2) X(cuDeviceTotalMem_v2) X(cuDeviceGetPCIBusId)         \
    X(cuDeviceGetByPCIBusId) X(cuDeviceCanAccessPeer) X(cuDeviceGetP2PAttribute)                   \
    X(cuDeviceGetDefaultMemPool) X(cuDeviceGetMemPool) X(cuDeviceSetMemPool)                       \
    X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease_v2)                                    \
    X(cuDevicePrimaryCtxGetState) X(cuDevicePrimaryCtxSetFlags_v2)                                 \
    X(cuDevicePrimaryCtxReset_v2)                                                                  \
    X(cuCtxCreate_v2) X(cuCtxCreate_v3) X(cuCtxCreate_v4) X(cuCtxDestroy_v2) X(cuCtxGetId)         \
    X(cuCtxGetCurrent) X(cuCtxSetCurrent) X(cuCtxPushCurrent_v2) X(cuCtxPopCurrent_v2)             \
    X(cuCtxGetDevice) X(cuCtxGetFlags) X(cuCtxGetApiVersion) X(cuCtxSynchronize)                   \
    X(cuCtxGetStreamPriorityRange) X(cuCtxEnablePeerAccess) X(cuCtxDisablePeerAccess)              \
    X(cuPointerGetAttribute) X(cuPointerGetAttributes) X(cuPointerSetAttribute)                    \
    X(cuMemGetInfo_v2) X(cuMemAlloc_v2) X(cuMemFree_v2) X(cuMemGetAddressRange_v2)                 \
    X(cuMemAllocManaged) X(cuMemPrefetchAsync) X(cuMemAdvise)                                      \
    X(cuMemAllocHost_v2) X(cuMemHostAlloc) X(cuMemFreeHost) X(cuMemHostRegister_v2)                \
    X(cuMemHostUnregister) X(cuMemHostGetDevicePointer_v2) X(cuMemHostGetFlags)                    \
    X(cuMemAllocAsync) X(cuMemAllocFromPoolAsync) X(cuMemFreeAsync) X(cuMemPoolCreate)             \
    X(cuMemPoolDestroy) X(cuMemPoolTrimTo) X(cuMemPoolSetAttribute) X(cuMemPoolGetAttribute)       \
    X(cuMemPoolSetAccess) X(cuMemPoolGetAccess)                                                    \
    X(cuMemGetAllocationGranularity) X(cuMemCreate) X(cuMemRelease) X(cuMemAddressReserve)         \
    X(cuMemAddressFree) X(cuMemMap) X(cuMemUnmap) X(cuMemSetAccess) X(cuMemGetAccess)              \
    X(cuMemRetainAllocationHandle) X(cuMemGetAllocationPropertiesFromHandle)                       \
    X(cuMemcpy) X(cuMemcpyAsync) X(cuMemcpyHtoD_v2) X(cuMemcpyDtoH_v2) X(cuMemcpyDtoD_v2)          \
    X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoHAsync_v2) X(cuMemcpyDtoDAsync_v2) X(cuMemcpyPeer)        \
    X(cuMemcpyPeerAsync) X(cuMemcpy2D_v2) X(cuMemcpy2DUnaligned_v2) X(cuMemcpy2DAsync_v2)          \
    X(cuMemcpy3D_v2) X(cuMemcpy3DAsync_v2)                                                         \
    X(cuMemsetD8_v2) X(cuMemsetD8Async) X(cuMemsetD32_v2) X(cuMemsetD32Async)                      \
    X(cuStreamCreate) X(cuStreamCreateWithPriority) X(cuStreamDestroy_v2) X(cuStreamQuery)         \
    X(cuStreamSynchronize) X(cuStreamWaitEvent) X(cuStreamGetFlags) X(cuStreamGetPriority)         \
    X(cuStreamGetCtx) X(cuStreamGetId) X(cuStreamIsCapturing) X(cuLaunchHostFunc)  \
    X(cuThreadExchangeStreamCaptureMode) \
    X(cuEventCreate) X(cuEventDestroy_v2) X(cuEventRecord) X(cuEventRecordWithFlags)               \
    X(cuEventQuery) X(cuEventSynchronize) X(cuEventElapsedTime) X(cuEventElapsedTime_v2)           \
    X(cuModuleLoadData) X(cuModuleLoadDataEx) X(cuModuleUnload) X(cuModuleGetFunction)             \
    X(cuModuleGetGlobal_v2)                                                                        \
    X(cuFuncGetAttribute) X(cuFuncSetAttribute)                                                    \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor) X(cuLaunchKernel)                               \
    X(cuIpcGetMemHandle) X(cuIpcOpenMemHandle_v2) X(cuIpcCloseMemHandle)                           \
    X(cuIpcGetEventHandle) X(cuIpcOpenEventHandle)
/* clang-format on */

#define TEMPI_EMU_INDEX(name) EMU_##name,
typedef enum { TEMPI_EMU_TABLE(TEMPI_EMU_INDEX) TEMPI_EMU_FUNCTIONS } tempi_emu_function;
#undef TEMPI_EMU_INDEX

#endif
