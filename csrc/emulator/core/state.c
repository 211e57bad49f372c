/* state.c: the driver's life cycle, and the entry and exit of every call. */
#include "emulator/core/emulator.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

typedef enum { NOT_YET, READY, LOST, GONE, FORKED } life;

static _Atomic int state = NOT_YET;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static pthread_once_t once = PTHREAD_ONCE_INIT;
_Thread_local bool tempi_emu_in_callback;

void tempi_emu_lock(void)
{
    pthread_mutex_lock(&lock);
}

void tempi_emu_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

uint64_t tempi_emu_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void tempi_emu_wait(uint64_t nanoseconds)
{
    const uint64_t until = tempi_emu_now() + nanoseconds;
    const struct timespec time = {.tv_sec = (time_t)(until / 1000000000u),
                                  .tv_nsec = (long)(until % 1000000000u)};
    pthread_cond_timedwait(&changed, &lock, &time);
}

void tempi_emu_changed(void)
{
    pthread_cond_broadcast(&changed);
}

bool tempi_emu_stopped(void)
{
    return atomic_load(&state) != READY;
}

/* A forked child cannot use its parent's driver, as on real hardware; it may start its own if the
 * parent had none. */
static void in_child(void)
{
    int was = READY;
    if (!atomic_compare_exchange_strong(&state, &was, FORKED)) {
        was = LOST;
        atomic_compare_exchange_strong(&state, &was, FORKED);
    }
}

static void prepare(void)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &attributes);
    pthread_condattr_destroy(&attributes);
    tempi_emu_options_read();
    tempi_emu_inject_read();
    pthread_atfork(NULL, NULL, in_child);
}

void tempi_emu_start(void)
{
    pthread_once(&once, prepare);
    int was = NOT_YET;
    atomic_compare_exchange_strong(&state, &was, READY);
}

static CUresult state_error(tempi_emu_need need)
{
    switch (atomic_load(&state)) {
    case READY: return CUDA_SUCCESS;
    case LOST: return CUDA_ERROR_DEVICE_UNAVAILABLE;
    case GONE: return CUDA_ERROR_DEINITIALIZED;
    case FORKED: return CUDA_ERROR_NOT_INITIALIZED;
    default: return need == EMU_ALWAYS ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
    }
}

CUresult tempi_emu_enter(tempi_emu_function function, tempi_emu_need need,
                         tempi_emu_context **context)
{
    pthread_once(&once, prepare);
    const uint64_t call = atomic_fetch_add(&tempi_emu_calls[function], 1) + 1;
    CUresult result = state_error(need);
    if (result != CUDA_SUCCESS)
        return result;
    if (tempi_emu_in_callback && need != EMU_ALWAYS)
        return CUDA_ERROR_NOT_PERMITTED;
    bool lost = false;
    result = tempi_emu_inject(function, call, &lost);
    if (lost) {
        int was = READY;
        atomic_compare_exchange_strong(&state, &was, LOST);
    }
    if (result != CUDA_SUCCESS)
        return result;
    tempi_emu_lock();
    result = tempi_emu_capture_check(function);
    if (result != CUDA_SUCCESS)
        return tempi_emu_leave(result);
    if (need != EMU_CONTEXT)
        return CUDA_SUCCESS;
    tempi_emu_context *const current = tempi_emu_current();
    result = CUDA_ERROR_INVALID_CONTEXT;
    if (current != NULL)
        result = current->active ? current->sticky : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (result != CUDA_SUCCESS)
        return tempi_emu_leave(result);
    if (context != NULL)
        *context = current;
    return CUDA_SUCCESS;
}

CUresult tempi_emu_leave(CUresult result)
{
    tempi_emu_unlock();
    return result;
}

/* Functions of the emulator itself, for dlsym or ctypes. */

TEMPI_EMU_API void tempi_emulator_deinit(void);
TEMPI_EMU_API void tempi_emulator_deinit(void)
{
    int was = READY;
    if (!atomic_compare_exchange_strong(&state, &was, GONE)) {
        was = NOT_YET;
        atomic_compare_exchange_strong(&state, &was, GONE);
    }
}

/* The driver is shut down once its library's destructors have run. */
__attribute__((destructor)) static void at_exit(void)
{
    if (atomic_load(&state) == READY || atomic_load(&state) == LOST)
        tempi_emu_report();
    tempi_emulator_deinit();
}

CUresult TEMPI_EMU_API cuInit(unsigned flags);
CUresult TEMPI_EMU_API cuInit(unsigned flags)
{
    const CUresult result = tempi_emu_enter(EMU_cuInit, EMU_ALWAYS, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (flags != 0)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    if (tempi_emu_option.devices == 0)
        return tempi_emu_leave(CUDA_ERROR_NO_DEVICE);
    if (!tempi_emu_space_init())
        return tempi_emu_leave(CUDA_ERROR_OPERATING_SYSTEM);
    tempi_emu_start();
    return tempi_emu_leave(CUDA_SUCCESS);
}
