/* context.c: primary contexts, one for each device, and which one is current in a thread. */
#include "emulator/emulator.h"

enum { DEPTH = 64 };

tempi_emu_context tempi_emu_contexts[EMU_DEVICES];
static _Thread_local tempi_emu_context *stack[DEPTH];
static _Thread_local int depth; /* stack[depth - 1] is current, if depth > 0 */

tempi_emu_context *tempi_emu_current(void)
{
    return depth > 0 ? stack[depth - 1] : NULL;
}

bool tempi_emu_context_valid(const tempi_emu_context *context)
{
    for (int i = 0; i < tempi_emu_option.devices; i++)
        if (context == &tempi_emu_contexts[i])
            return true;
    return false;
}

CUresult tempi_emu_context_start(tempi_emu_context *context)
{
    if (context->active)
        return CUDA_SUCCESS;
    context->legacy = tempi_emu_stream_new(context, 0, 0);
    if (context->legacy == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    context->active = true;
    context->sticky = CUDA_SUCCESS;
    context->peers = 0;
    context->used = 0;
    context->pool = tempi_emu_pool_default(context->device);
    return CUDA_SUCCESS;
}

static void context_stop(tempi_emu_context *context)
{
    if (!context->active)
        return;
    tempi_emu_drive_context(context);
    for (tempi_emu_stream *s = tempi_emu_streams(), *next; s != NULL; s = next) {
        next = s->next;
        if (s->context == context && !s->destroyed) {
            s->destroyed = true;
            tempi_emu_stream_drop(s);
        }
    }
    tempi_emu_release_context(context);
    context->legacy = NULL;
    context->active = false;
    context->retained = 0;
}

static bool valid_device(CUdevice device)
{
    return device >= 0 && device < tempi_emu_option.devices;
}

CUresult TEMPI_EMU_API cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult TEMPI_EMU_API cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    CUresult result = tempi_emu_enter(EMU_cuDevicePrimaryCtxRetain, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (context == NULL)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    if (!valid_device(device))
        return tempi_emu_leave(CUDA_ERROR_INVALID_DEVICE);
    tempi_emu_context *const found = &tempi_emu_contexts[device];
    found->device = device;
    result = tempi_emu_context_start(found);
    if (result != CUDA_SUCCESS)
        return tempi_emu_leave(result);
    found->retained++;
    *context = found;
    return tempi_emu_leave(CUDA_SUCCESS);
}

static CUresult release(tempi_emu_function function, CUdevice device, bool all)
{
    const CUresult result = tempi_emu_enter(function, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (!valid_device(device))
        return tempi_emu_leave(CUDA_ERROR_INVALID_DEVICE);
    tempi_emu_context *const context = &tempi_emu_contexts[device];
    if (context->retained == 0 && !all)
        return tempi_emu_leave(CUDA_ERROR_INVALID_CONTEXT);
    if (all || --context->retained == 0)
        context_stop(context);
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuDevicePrimaryCtxRelease_v2(CUdevice device);
CUresult TEMPI_EMU_API cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    return release(EMU_cuDevicePrimaryCtxRelease_v2, device, false);
}

CUresult TEMPI_EMU_API cuDevicePrimaryCtxReset_v2(CUdevice device);
CUresult TEMPI_EMU_API cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    return release(EMU_cuDevicePrimaryCtxReset_v2, device, true);
}

CUresult TEMPI_EMU_API cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active);
CUresult TEMPI_EMU_API cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    const CUresult result = tempi_emu_enter(EMU_cuDevicePrimaryCtxGetState, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (!valid_device(device))
        return tempi_emu_leave(CUDA_ERROR_INVALID_DEVICE);
    if (flags != NULL)
        *flags = tempi_emu_contexts[device].flags;
    if (active != NULL)
        *active = tempi_emu_contexts[device].active;
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags);
CUresult TEMPI_EMU_API cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags)
{
    const CUresult result = tempi_emu_enter(EMU_cuDevicePrimaryCtxSetFlags_v2, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (!valid_device(device))
        return tempi_emu_leave(CUDA_ERROR_INVALID_DEVICE);
    tempi_emu_contexts[device].flags = flags;
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuCtxGetCurrent(CUcontext *context);
CUresult TEMPI_EMU_API cuCtxGetCurrent(CUcontext *context)
{
    const CUresult result = tempi_emu_enter(EMU_cuCtxGetCurrent, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    *context = tempi_emu_current();
    return tempi_emu_leave(CUDA_SUCCESS);
}

static CUresult set_current(CUcontext context)
{
    if (context != NULL && !tempi_emu_context_valid(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context == NULL)
        depth -= depth > 0;
    else if (depth > 0)
        stack[depth - 1] = context;
    else
        stack[depth++] = context;
    return CUDA_SUCCESS;
}

CUresult TEMPI_EMU_API cuCtxSetCurrent(CUcontext context);
CUresult TEMPI_EMU_API cuCtxSetCurrent(CUcontext context)
{
    const CUresult result = tempi_emu_enter(EMU_cuCtxSetCurrent, EMU_INIT, NULL);
    return result != CUDA_SUCCESS ? result : tempi_emu_leave(set_current(context));
}

CUresult TEMPI_EMU_API cuCtxPushCurrent_v2(CUcontext context);
CUresult TEMPI_EMU_API cuCtxPushCurrent_v2(CUcontext context)
{
    const CUresult result = tempi_emu_enter(EMU_cuCtxPushCurrent_v2, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (!tempi_emu_context_valid(context) || depth == DEPTH)
        return tempi_emu_leave(CUDA_ERROR_INVALID_CONTEXT);
    stack[depth++] = context;
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuCtxPopCurrent_v2(CUcontext *context);
CUresult TEMPI_EMU_API cuCtxPopCurrent_v2(CUcontext *context)
{
    const CUresult result = tempi_emu_enter(EMU_cuCtxPopCurrent_v2, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (depth == 0)
        return tempi_emu_leave(CUDA_ERROR_INVALID_CONTEXT);
    depth--;
    if (context != NULL)
        *context = stack[depth];
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuCtxGetDevice(CUdevice *device);
CUresult TEMPI_EMU_API cuCtxGetDevice(CUdevice *device)
{
    const CUresult result = tempi_emu_enter(EMU_cuCtxGetDevice, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    const tempi_emu_context *const current = tempi_emu_current();
    if (current == NULL)
        return tempi_emu_leave(CUDA_ERROR_INVALID_CONTEXT);
    *device = current->device;
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuCtxGetFlags(unsigned *flags);
CUresult TEMPI_EMU_API cuCtxGetFlags(unsigned *flags)
{
    tempi_emu_context *context;
    const CUresult result = tempi_emu_enter(EMU_cuCtxGetFlags, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    *flags = context->flags;
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuCtxGetApiVersion(CUcontext context, unsigned *version);
CUresult TEMPI_EMU_API cuCtxGetApiVersion(CUcontext context, unsigned *version)
{
    const CUresult result = tempi_emu_enter(EMU_cuCtxGetApiVersion, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    const tempi_emu_context *const asked = context != NULL ? context : tempi_emu_current();
    if (asked == NULL || !tempi_emu_context_valid(asked))
        return tempi_emu_leave(CUDA_ERROR_INVALID_CONTEXT);
    *version = 3020;
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuCtxSynchronize(void);
CUresult TEMPI_EMU_API cuCtxSynchronize(void)
{
    tempi_emu_context *context;
    const CUresult result = tempi_emu_enter(EMU_cuCtxSynchronize, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    return tempi_emu_leave(tempi_emu_drive_context(context));
}

CUresult TEMPI_EMU_API cuCtxGetStreamPriorityRange(int *least, int *greatest);
CUresult TEMPI_EMU_API cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    const CUresult result = tempi_emu_enter(EMU_cuCtxGetStreamPriorityRange, EMU_CONTEXT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (least != NULL)
        *least = 0;
    if (greatest != NULL)
        *greatest = -5;
    return tempi_emu_leave(CUDA_SUCCESS);
}

static CUresult change_peer(tempi_emu_function function, CUcontext peer, bool enable, unsigned flags)
{
    tempi_emu_context *context;
    const CUresult result = tempi_emu_enter(function, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!tempi_emu_context_valid(peer) || peer == context)
        return tempi_emu_leave(CUDA_ERROR_INVALID_CONTEXT);
    if (flags != 0)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    const unsigned bit = 1u << peer->device;
    if (enable == ((context->peers & bit) != 0))
        return tempi_emu_leave(enable ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
                                      : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    context->peers ^= bit;
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuCtxEnablePeerAccess(CUcontext peer, unsigned flags);
CUresult TEMPI_EMU_API cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    return change_peer(EMU_cuCtxEnablePeerAccess, peer, true, flags);
}

CUresult TEMPI_EMU_API cuCtxDisablePeerAccess(CUcontext peer);
CUresult TEMPI_EMU_API cuCtxDisablePeerAccess(CUcontext peer)
{
    return change_peer(EMU_cuCtxDisablePeerAccess, peer, false, 0);
}
