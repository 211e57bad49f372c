/* cu_ipc.c: memory of another process. A handle names a process and a place in its memory file; it
 * opens as memory of the current context with a buffer id of its own (CUDA driver API,
 * cuIpcOpenMemHandle). A process cannot open its own handles. */
#include "emulator/core/emulator.h"

#include <fcntl.h>
#include <unistd.h>

typedef struct {
    int pid;
    int file;
    uint64_t offset;
    uint64_t size;
    char unused[40];
} ipc_handle;

_Static_assert(sizeof(ipc_handle) == 64, "CUipcMemHandle");

CUresult TEMPI_EMU_API cuIpcGetMemHandle(ipc_handle *out, CUdeviceptr address);
CUresult TEMPI_EMU_API cuIpcGetMemHandle(ipc_handle *out, CUdeviceptr address)
{
    const CUresult result = tempi_emu_enter(EMU_cuIpcGetMemHandle, EMU_CONTEXT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    const tempi_emu_range *const range = tempi_emu_range_find(address);
    if (range == NULL || range->kind != EMU_DEVICE)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    *out = (ipc_handle){.pid = (int)getpid(),
                        .file = tempi_emu_space_file(),
                        .offset = tempi_emu_space_offset(range->base),
                        .size = range->size};
    return tempi_emu_leave(CUDA_SUCCESS);
}

static CUresult open_handle(tempi_emu_context *context, const ipc_handle *handle, CUdeviceptr *out)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle->pid, handle->file);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    const uint64_t base = file < 0 ? 0 : tempi_emu_space_take(handle->size, EMU_PAGE, 0);
    const bool mapped = base != 0 &&
                        tempi_emu_space_map_from(base, handle->size, file, handle->offset);
    if (file >= 0)
        close(file);
    const tempi_emu_range made = {.base = base,
                                  .size = handle->size,
                                  .bytes = tempi_emu_space_bytes(base),
                                  .device = context->device,
                                  .context = context,
                                  .kind = EMU_OPENED};
    if (!mapped || tempi_emu_range_add(&made) == NULL)
        return CUDA_ERROR_MAP_FAILED;
    *out = base;
    return CUDA_SUCCESS;
}

CUresult TEMPI_EMU_API cuIpcOpenMemHandle_v2(CUdeviceptr *out, ipc_handle handle, unsigned flags);
CUresult TEMPI_EMU_API cuIpcOpenMemHandle_v2(CUdeviceptr *out, ipc_handle handle, unsigned flags)
{
    tempi_emu_context *context;
    const CUresult result = tempi_emu_enter(EMU_cuIpcOpenMemHandle_v2, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || flags != 1) /* CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS */
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    if (handle.pid == (int)getpid())
        return tempi_emu_leave(CUDA_ERROR_INVALID_CONTEXT);
    return tempi_emu_leave(open_handle(context, &handle, out));
}

CUresult TEMPI_EMU_API cuIpcCloseMemHandle(CUdeviceptr address);
CUresult TEMPI_EMU_API cuIpcCloseMemHandle(CUdeviceptr address)
{
    tempi_emu_context *context;
    CUresult result = tempi_emu_enter(EMU_cuIpcCloseMemHandle, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    result = tempi_emu_drive_context(context);
    tempi_emu_range *const range = tempi_emu_range_find(address);
    if (range == NULL || range->base != address || range->kind != EMU_OPENED)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    tempi_emu_release(range);
    return tempi_emu_leave(result);
}
