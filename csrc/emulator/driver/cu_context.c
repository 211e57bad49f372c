/* cu_context.c: primary contexts, one per device, contexts created by programs, and each thread's
 * current context. */
#include "emulator/core/emulator.h"

enum { DEPTH = 64 };

tempi_emu_context tempi_emu_contexts[EMU_CONTEXTS];
/* stack[depth - 1] is current, if depth > 0; a changed `life` means that it was destroyed. */
static _Thread_local struct {
    tempi_emu_context *context;
    unsigned life;
} stack[DEPTH];
static _Thread_local int depth;

/* Returns an inactive stand-in for a context that was destroyed while current here. */
tempi_emu_context *tempi_emu_current(void)
{
    static tempi_emu_context destroyed;
    if (depth == 0)
        return NULL;
    tempi_emu_context *const context = stack[depth - 1].context;
    return context->life == stack[depth - 1].life ? context : &destroyed;
}

static void put_current(int at, tempi_emu_context *context)
{
    stack[at].context = context;
    stack[at].life = context->life;
}

bool tempi_emu_context_primary(const tempi_emu_context *context)
{
    return context < tempi_emu_contexts + EMU_DEVICES;
}

bool tempi_emu_context_valid(const tempi_emu_context *context)
{
    for (int i = 0; i < EMU_CONTEXTS; i++)
        if (context == &tempi_emu_contexts[i])
            return i < EMU_DEVICES ? i < tempi_emu_option.devices : context->active;
    return false;
}

CUresult tempi_emu_drive_device(int device)
{
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < EMU_CONTEXTS; i++) {
        tempi_emu_context *const context = &tempi_emu_contexts[i];
        if (!context->active || context->device != device)
            continue;
        const CUresult one = tempi_emu_drive_context(context);
        result = result == CUDA_SUCCESS ? one : result;
    }
    return result;
}

static CUresult context_start(tempi_emu_context *context, int device)
{
    if (context->active)
        return CUDA_SUCCESS;
    context->legacy = tempi_emu_stream_new(context, 0);
    if (context->legacy == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    context->device = device;
    context->green = false;
    context->active = true;
    context->sticky = CUDA_SUCCESS;
    memset(context->peers, 0, sizeof context->peers);
    return CUDA_SUCCESS;
}

/* Ends the context with all its resources, and revokes peer access to it. */
static void context_stop(tempi_emu_context *context)
{
    if (!context->active)
        return;
    tempi_emu_captures_end(context);
    tempi_emu_drive_context(context);
    tempi_emu_events_end(context);
    tempi_emu_streams_end(context);
    tempi_emu_modules_end(context);
    tempi_emu_release_context(context);
    for (int i = 0; i < EMU_CONTEXTS; i++)
        tempi_emu_contexts[i].peers[context - tempi_emu_contexts] = false;
    context->legacy = NULL;
    context->active = false;
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
    result = context_start(found, device);
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
    /* A reset does not release: the references stay (cuDevicePrimaryCtxReset). */
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

/* ---- contexts that programs make ------------------------------------------------------------- */

/* A free handle: the latest destroyed one, as an allocator would return it. */
static tempi_emu_context *spare(void)
{
    tempi_emu_context *found = NULL;
    for (int i = EMU_DEVICES; i < EMU_CONTEXTS; i++)
        if (!tempi_emu_contexts[i].active &&
            (found == NULL || tempi_emu_contexts[i].life > found->life))
            found = &tempi_emu_contexts[i];
    return found;
}

static CUresult create(tempi_emu_function function, CUcontext *context, unsigned flags,
                       CUdevice device)
{
    CUresult result = tempi_emu_enter(function, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (context == NULL)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    if (!valid_device(device))
        return tempi_emu_leave(CUDA_ERROR_INVALID_DEVICE);
    tempi_emu_context *const made = spare();
    result = made != NULL && depth < DEPTH ? context_start(made, device) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS)
        return tempi_emu_leave(result);
    made->flags = flags;
    put_current(depth++, made);
    *context = made;
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUresult TEMPI_EMU_API cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    return create(EMU_cuCtxCreate_v2, context, flags, device);
}

/* Shares of the multiprocessors are accepted and ignored. */
CUresult TEMPI_EMU_API cuCtxCreate_v3(CUcontext *context, const void *shares, int n, unsigned flags,
                                      CUdevice device);
CUresult TEMPI_EMU_API cuCtxCreate_v3(CUcontext *context, const void *shares, int n, unsigned flags,
                                      CUdevice device)
{
    (void)shares, (void)n;
    return create(EMU_cuCtxCreate_v3, context, flags, device);
}

CUresult TEMPI_EMU_API cuCtxCreate_v4(CUcontext *context, const void *params, unsigned flags,
                                      CUdevice device);
CUresult TEMPI_EMU_API cuCtxCreate_v4(CUcontext *context, const void *params, unsigned flags,
                                      CUdevice device)
{
    (void)params;
    return create(EMU_cuCtxCreate_v4, context, flags, device);
}

/* The context stays current in other threads, but is unusable there. */
CUresult TEMPI_EMU_API cuCtxDestroy_v2(CUcontext context);
CUresult TEMPI_EMU_API cuCtxDestroy_v2(CUcontext context)
{
    const CUresult result = tempi_emu_enter(EMU_cuCtxDestroy_v2, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (!tempi_emu_context_valid(context) || tempi_emu_context_primary(context))
        return tempi_emu_leave(CUDA_ERROR_INVALID_CONTEXT);
    const bool current = tempi_emu_current() == context;
    context_stop(context);
    context->life++;
    depth -= current;
    return tempi_emu_leave(CUDA_SUCCESS);
}

/* A green context is a share of a device; its context uses the primary one's memory (CUDA driver
 * API, "Green Contexts"). The share itself is ignored, and the two handles are one object. */
CUresult TEMPI_EMU_API cuGreenCtxCreate(CUcontext *green, const void *resources, CUdevice device,
                                        unsigned flags);
CUresult TEMPI_EMU_API cuGreenCtxCreate(CUcontext *green, const void *resources, CUdevice device,
                                        unsigned flags)
{
    (void)resources;
    CUresult result = tempi_emu_enter(EMU_cuGreenCtxCreate, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (green == NULL || flags != 1) /* CU_GREEN_CTX_DEFAULT_STREAM */
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    if (!valid_device(device))
        return tempi_emu_leave(CUDA_ERROR_INVALID_DEVICE);
    tempi_emu_context *const made = spare();
    result = made != NULL ? context_start(made, device) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS)
        return tempi_emu_leave(result);
    made->green = true;
    *green = made;
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuCtxFromGreenCtx(CUcontext *context, CUcontext green);
CUresult TEMPI_EMU_API cuCtxFromGreenCtx(CUcontext *context, CUcontext green)
{
    const CUresult result = tempi_emu_enter(EMU_cuCtxFromGreenCtx, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (!tempi_emu_context_valid(green) || !green->green)
        return tempi_emu_leave(CUDA_ERROR_INVALID_CONTEXT);
    *context = green;
    return tempi_emu_leave(CUDA_SUCCESS);
}

CUresult TEMPI_EMU_API cuGreenCtxDestroy(CUcontext green);
CUresult TEMPI_EMU_API cuGreenCtxDestroy(CUcontext green)
{
    const CUresult result = tempi_emu_enter(EMU_cuGreenCtxDestroy, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (!tempi_emu_context_valid(green) || !green->green)
        return tempi_emu_leave(CUDA_ERROR_INVALID_CONTEXT);
    const bool current = tempi_emu_current() == green;
    context_stop(green);
    green->life++;
    depth -= current;
    return tempi_emu_leave(CUDA_SUCCESS);
}

/* Unlike the handle, the id is never reused. */
CUresult TEMPI_EMU_API cuCtxGetId(CUcontext context, unsigned long long *id);
CUresult TEMPI_EMU_API cuCtxGetId(CUcontext context, unsigned long long *id)
{
    const CUresult result = tempi_emu_enter(EMU_cuCtxGetId, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    const tempi_emu_context *const asked = context != NULL ? context : tempi_emu_current();
    if (asked == NULL || !tempi_emu_context_valid(asked))
        return tempi_emu_leave(asked == NULL ? CUDA_ERROR_INVALID_CONTEXT
                                             : CUDA_ERROR_CONTEXT_IS_DESTROYED);
    *id = 1 + (unsigned long long)(asked - tempi_emu_contexts) +
          (unsigned long long)EMU_CONTEXTS * asked->life;
    return tempi_emu_leave(CUDA_SUCCESS);
}

/* ---- the current one ------------------------------------------------------------------------- */

CUresult TEMPI_EMU_API cuCtxGetCurrent(CUcontext *context);
CUresult TEMPI_EMU_API cuCtxGetCurrent(CUcontext *context)
{
    const CUresult result = tempi_emu_enter(EMU_cuCtxGetCurrent, EMU_INIT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    *context = depth > 0 ? stack[depth - 1].context : NULL;
    return tempi_emu_leave(CUDA_SUCCESS);
}

static CUresult set_current(CUcontext context)
{
    if (context != NULL && !tempi_emu_context_valid(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context == NULL)
        depth -= depth > 0;
    else if (depth > 0)
        put_current(depth - 1, context);
    else
        put_current(depth++, context);
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
    put_current(depth++, context);
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
        *context = stack[depth].context;
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
    if (current != stack[depth - 1].context) /* it replaces a destroyed one */
        return tempi_emu_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    *device = current->device;
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

static CUresult change_peer(tempi_emu_function function, CUcontext peer, bool enable,
                            unsigned flags)
{
    tempi_emu_context *context;
    const CUresult result = tempi_emu_enter(function, EMU_CONTEXT, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!tempi_emu_context_valid(peer) || peer == context)
        return tempi_emu_leave(CUDA_ERROR_INVALID_CONTEXT);
    if (flags != 0)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    if (enable && peer->device == context->device)
        return tempi_emu_leave(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    bool *const enabled = &context->peers[peer - tempi_emu_contexts];
    if (enable == *enabled)
        return tempi_emu_leave(enable ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
                                      : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    *enabled = enable;
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
