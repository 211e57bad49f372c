/* cuda/driver.h: the CUDA driver API as a table of function pointers.
 *
 * Building tempi needs no NVIDIA headers: the few types and numbers are declared here, from the
 * CUDA driver API reference. The table is filled once the program has the driver loaded, by any
 * name: tempi never brings CUDA into a process. With TEMPI_CUDA_DRIVER=emulated it is filled at
 * startup, from the emulator beside libtempi.so.
 *
 * Every result goes through tempi_cuda_check, which logs and counts it by name. After an error that
 * leaves a device unusable (CUDA calls it sticky) the GPU path is off for the life of the process.
 */
#ifndef TEMPI_CUDA_DRIVER_H
#define TEMPI_CUDA_DRIVER_H

#include "tempi.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* CUdeviceptr: under unified addressing (every 64-bit system) host addresses are valid ones too. */
typedef uint64_t tempi_cuda_address;
/* CUcontext, CUstream, CUevent, CUmodule, CUfunction. */
typedef void *tempi_cuda_context, *tempi_cuda_stream, *tempi_cuda_event, *tempi_cuda_module,
    *tempi_cuda_function;

/* CUresult: the values that tempi handles. */
enum {
    TEMPI_CUDA_SUCCESS = 0,
    TEMPI_CUDA_INVALID_VALUE = 1,
    TEMPI_CUDA_OUT_OF_MEMORY = 2,
    TEMPI_CUDA_NOT_INITIALIZED = 3,
    TEMPI_CUDA_DEINITIALIZED = 4,
    TEMPI_CUDA_INVALID_IMAGE = 200,
    TEMPI_CUDA_INVALID_CONTEXT = 201,
    TEMPI_CUDA_NO_BINARY = 209,
    TEMPI_CUDA_INVALID_PTX = 218,
    TEMPI_CUDA_UNSUPPORTED_PTX = 222,
    TEMPI_CUDA_NOT_READY = 600,
    TEMPI_CUDA_NOT_SUPPORTED = 801
};

enum {
    TEMPI_CUDA_STREAM_BLOCKING = 0, /* comes after the work in the legacy default stream */
    TEMPI_CUDA_STREAM_NON_BLOCKING = 1,
    TEMPI_CUDA_EVENT_DISABLE_TIMING = 2,
    TEMPI_CUDA_HOST_PORTABLE = 1,
    TEMPI_CUDA_HOST_MAPPED = 2
};
/* CUstream of the legacy default stream: it synchronizes with all blocking streams, both ways. */
#define TEMPI_CUDA_LEGACY_STREAM ((tempi_cuda_stream)(uintptr_t)1)
/* ... and of the calling thread's default stream. */
#define TEMPI_CUDA_THREAD_STREAM ((tempi_cuda_stream)(uintptr_t)2)

/* CUdevice_attribute */
enum {
    TEMPI_CUDA_MAX_PITCH = 11,
    TEMPI_CUDA_MULTIPROCESSORS = 16,
    TEMPI_CUDA_L2_CACHE = 38, /* bytes */
    TEMPI_CUDA_CAPABILITY_MAJOR = 75,
    TEMPI_CUDA_PAGEABLE_ACCESS = 88,             /* kernels reach the system's memory */
    TEMPI_CUDA_HOST_POINTERS_OF_REGISTERED = 91, /* the device's addresses are the host's */
    TEMPI_CUDA_CAPABILITY_MINOR = 76
};

/* CUpointer_attribute, and the values of MEMORY_TYPE */
enum {
    TEMPI_CUDA_POINTER_CONTEXT = 1,
    TEMPI_CUDA_POINTER_MEMORY_TYPE = 2,
    TEMPI_CUDA_POINTER_BUFFER_ID = 7,
    TEMPI_CUDA_POINTER_IS_MANAGED = 8,
    TEMPI_CUDA_POINTER_ORDINAL = 9,
    TEMPI_CUDA_POINTER_RANGE_START = 11,
    TEMPI_CUDA_POINTER_RANGE_SIZE = 12
};
/* CUmem_range_attribute: a device's ordinal, or negative */
enum { TEMPI_CUDA_RANGE_PREFERRED = 2, TEMPI_CUDA_RANGE_LAST_PREFETCH = 4 };
enum {
    TEMPI_CUDA_MEMORY_HOST = 1,
    TEMPI_CUDA_MEMORY_DEVICE = 2,
    TEMPI_CUDA_MEMORY_ARRAY = 3,
    TEMPI_CUDA_MEMORY_UNIFIED = 4
};

/* CUmemcpyAttributes; the hints matter for managed and pageable memory only. */
enum { TEMPI_CUDA_SOURCE_IN_STREAM_ORDER = 1 };
typedef struct tempi_memcpy_attributes {
    int source_order;
    int source_hint[2], destination_hint[2];
    unsigned flags;
} tempi_memcpy_attributes;

/* CUDA_MEMCPY2D (its _v2 form) */
typedef struct tempi_memory_copy2d {
    size_t src_x, src_y;
    int src_type;
    const void *src_host;
    tempi_cuda_address src_device;
    void *src_array;
    size_t src_pitch;
    size_t dst_x, dst_y;
    int dst_type;
    void *dst_host;
    tempi_cuda_address dst_device;
    void *dst_array;
    size_t dst_pitch;
    size_t width, height;
} tempi_memory_copy2d;

/* CUipcMemHandle: passed by value, also between processes. */
typedef struct tempi_ipc_handle {
    char bytes[64];
} tempi_ipc_handle;

/* X(needed, member, symbol, parameters). If a needed symbol is missing, the driver is not used; an
 * optional one is NULL in the table and disables only its users. The symbols are those that cuda.h
 * maps the plain names to (legacy default stream). */
/* clang-format off */
#define TEMPI_CUDA_CALLS(X)                                                                        \
    X(1, Init, "cuInit", (unsigned flags))                                                         \
    X(1, GetErrorName, "cuGetErrorName", (int result, const char **name))                          \
    X(0, DriverGetVersion, "cuDriverGetVersion", (int *version))                                   \
    X(1, DeviceGetCount, "cuDeviceGetCount", (int *count))                                         \
    X(1, DeviceGet, "cuDeviceGet", (int *device, int ordinal))                                     \
    X(0, DeviceGetName, "cuDeviceGetName", (char *name, int size, int device))                     \
    X(1, DeviceGetAttribute, "cuDeviceGetAttribute", (int *value, int attribute, int device))      \
    X(0, DeviceTotalMem, "cuDeviceTotalMem_v2", (size_t *bytes, int device))                       \
    X(1, DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain",                                       \
      (tempi_cuda_context *context, int device))                                                   \
    X(1, DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (int device))                    \
    X(0, DevicePrimaryCtxGetState, "cuDevicePrimaryCtxGetState",                                   \
      (int device, unsigned *flags, int *active))                                                  \
    X(1, CtxGetCurrent, "cuCtxGetCurrent", (tempi_cuda_context *context))                          \
    X(0, CtxGetDevice, "cuCtxGetDevice", (int *device))                                            \
    X(1, CtxPushCurrent, "cuCtxPushCurrent_v2", (tempi_cuda_context context))                      \
    X(1, CtxPopCurrent, "cuCtxPopCurrent_v2", (tempi_cuda_context *context))                       \
    X(1, PointerGetAttribute, "cuPointerGetAttribute",                                             \
      (void *data, int attribute, tempi_cuda_address address))                                     \
    X(1, PointerGetAttributes, "cuPointerGetAttributes",                                           \
      (unsigned n, int *attributes, void **data, tempi_cuda_address address))                      \
    X(0, PointerSetAttribute, "cuPointerSetAttribute",                                             \
      (const void *value, int attribute, tempi_cuda_address address))                              \
    X(0, MemRangeGetAttribute, "cuMemRangeGetAttribute",                                           \
      (void *data, size_t size, int attribute, tempi_cuda_address address, size_t bytes))          \
    X(1, MemAlloc, "cuMemAlloc_v2", (tempi_cuda_address *out, size_t bytes))                       \
    X(1, MemFree, "cuMemFree_v2", (tempi_cuda_address address))                                    \
    X(1, MemHostAlloc, "cuMemHostAlloc", (void **out, size_t bytes, unsigned flags))               \
    X(1, MemFreeHost, "cuMemFreeHost", (void *address))                                            \
    X(0, MemHostRegister, "cuMemHostRegister_v2", (void *address, size_t bytes, unsigned flags))   \
    X(0, MemHostUnregister, "cuMemHostUnregister", (void *address))                                \
    X(0, IpcGetMemHandle, "cuIpcGetMemHandle",                                                     \
      (tempi_ipc_handle *out, tempi_cuda_address address))                                         \
    X(0, IpcOpenMemHandle, "cuIpcOpenMemHandle_v2",                                                \
      (tempi_cuda_address *out, tempi_ipc_handle handle, unsigned flags))                          \
    X(0, IpcCloseMemHandle, "cuIpcCloseMemHandle", (tempi_cuda_address address))                   \
    X(0, MemsetD8Async, "cuMemsetD8Async",                                                         \
      (tempi_cuda_address address, unsigned char value, size_t bytes, tempi_cuda_stream stream))   \
    X(1, MemcpyAsync, "cuMemcpyAsync",                                                             \
      (tempi_cuda_address dst, tempi_cuda_address src, size_t bytes, tempi_cuda_stream stream))    \
    X(0, MemcpyBatchAsync, "cuMemcpyBatchAsync_v2",                                                \
      (tempi_cuda_address * dst, tempi_cuda_address * src, size_t * bytes, size_t n,                \
       tempi_memcpy_attributes * attributes, size_t * first, size_t n_attributes,                   \
       tempi_cuda_stream stream))                                                                  \
    X(0, Memcpy2DAsync, "cuMemcpy2DAsync_v2",                                                      \
      (const tempi_memory_copy2d *copy, tempi_cuda_stream stream))                                   \
    X(1, StreamCreate, "cuStreamCreate", (tempi_cuda_stream *out, unsigned flags))                 \
    X(0, StreamCreateWithPriority, "cuStreamCreateWithPriority",                                   \
      (tempi_cuda_stream * out, unsigned flags, int priority))                                     \
    X(0, CtxGetStreamPriorityRange, "cuCtxGetStreamPriorityRange", (int *least, int *greatest))    \
    X(0, StreamQuery, "cuStreamQuery", (tempi_cuda_stream stream))                                 \
    X(0, StreamIsCapturing, "cuStreamIsCapturing", (tempi_cuda_stream stream, int *status))        \
    X(0, StreamWriteValue32, "cuStreamWriteValue32_v2",                                            \
      (tempi_cuda_stream stream, tempi_cuda_address address, uint32_t value, unsigned flags))      \
    X(1, StreamDestroy, "cuStreamDestroy_v2", (tempi_cuda_stream stream))                          \
    X(1, StreamSynchronize, "cuStreamSynchronize", (tempi_cuda_stream stream))                     \
    X(1, StreamWaitEvent, "cuStreamWaitEvent",                                                     \
      (tempi_cuda_stream stream, tempi_cuda_event event, unsigned flags))                          \
    X(1, EventCreate, "cuEventCreate", (tempi_cuda_event *out, unsigned flags))                    \
    X(1, EventDestroy, "cuEventDestroy_v2", (tempi_cuda_event event))                              \
    X(1, EventRecord, "cuEventRecord", (tempi_cuda_event event, tempi_cuda_stream stream))         \
    X(1, EventQuery, "cuEventQuery", (tempi_cuda_event event))                                     \
    X(1, EventSynchronize, "cuEventSynchronize", (tempi_cuda_event event))                         \
    X(0, EventElapsedTime, "cuEventElapsedTime",                                                   \
      (float *milliseconds, tempi_cuda_event start, tempi_cuda_event end))                         \
    X(0, ModuleLoadData, "cuModuleLoadData", (tempi_cuda_module *out, const void *image))          \
    X(0, ModuleUnload, "cuModuleUnload", (tempi_cuda_module module))                               \
    X(0, ModuleGetFunction, "cuModuleGetFunction",                                                 \
      (tempi_cuda_function *out, tempi_cuda_module module, const char *name))                      \
    X(0, FuncLoad, "cuFuncLoad", (tempi_cuda_function function))                                   \
    X(0, OccupancyMaxActiveBlocksPerMultiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor", \
      (int *blocks, tempi_cuda_function function, int block, size_t shared))                       \
    X(0, LaunchKernel, "cuLaunchKernel",                                                           \
      (tempi_cuda_function function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,           \
       unsigned by, unsigned bz, unsigned shared, tempi_cuda_stream stream, void **params,         \
       void **extra))                                                                              \
    X(0, ThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", (int *mode))
/* clang-format on */

typedef struct tempi_cuda_driver {
#define TEMPI_CUDA_MEMBER(needed, member, symbol, parameters) int(*member) parameters;
    TEMPI_CUDA_CALLS(TEMPI_CUDA_MEMBER)
#undef TEMPI_CUDA_MEMBER
} tempi_cuda_driver;

/* Valid once tempi_cuda_state is UP or LOST. */
extern tempi_cuda_driver tempi_cu;

typedef enum tempi_cuda_status {
    TEMPI_CUDA_ABSENT, /* the program has no CUDA (so far) */
    TEMPI_CUDA_UP,
    TEMPI_CUDA_LOST, /* a device was lost, or the driver is gone */
    TEMPI_CUDA_OFF   /* unusable: a driver without the needed symbols, or a forked child */
} tempi_cuda_status;

extern _Atomic int tempi_cuda_state;

static inline bool tempi_cuda_up(void)
{
    return atomic_load_explicit(&tempi_cuda_state, memory_order_acquire) == TEMPI_CUDA_UP;
}

/* Once, at startup: loads the emulator if TEMPI_CUDA_DRIVER selects it. */
void tempi_cuda_start(void);
/* Probes whether the program has loaded CUDA; fills the table if so. 11 to 35 ns if nothing was
 * loaded since the last probe (measured: a read of the loader's counter), else some microseconds.
 */
int tempi_cuda_probe(void);
/* For `tempi doctor` and tests: loads and initialises the driver itself. */
int tempi_cuda_load(void);
/* Whether a probe could ever succeed: the machine has an NVIDIA device, or the emulator is on. */
bool tempi_cuda_possible(void);
/* For tests: assume that the machine has a GPU. */
void tempi_cuda_assume_possible(void);
/* "none", "libcuda.so.1" or "emulated: CUDA on the CPU, a test device". */
const char *tempi_cuda_driver_name(void);
bool tempi_cuda_emulated(void);
/* In a forked child: a driver initialised before the fork cannot be used. */
void tempi_cuda_after_fork(void);

/* Converts the result of the driver call `call` to a tempi_status: OK, MEMORY or DEVICE. */
int tempi_cuda_check(int result, const char *call);
#define TEMPI_CU(member, ...) tempi_cuda_check(tempi_cu.member(__VA_ARGS__), "cu" #member)

#endif
