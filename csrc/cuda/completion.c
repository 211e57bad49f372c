#include "cuda/completion.h"
#include "cuda/pinned.h"

#include <string.h>

enum { BYTES = TEMPI_CUDA_FLAGS * sizeof(uint32_t) };

static bool can_write(const tempi_cuda_device *device)
{
    return !device->flags.off && tempi_cu.StreamWriteValue32 && tempi_cu.StreamQuery;
}

/* Caller holds the lock. */
static void add_all(tempi_cuda_flags *flags, void *words, bool registered,
                    tempi_cuda_address counters)
{
    flags->words = words;
    flags->registered = registered;
    flags->counters = counters;
    for (int i = 0; i < TEMPI_CUDA_FLAGS; ++i)
        flags->free[i] = TEMPI_CUDA_FLAGS - 1 - i;
    flags->nfree = TEMPI_CUDA_FLAGS;
}

/* In device memory, where kernels count fast; all 0. On failure only streams write flags. */
static tempi_cuda_address new_counters(tempi_cuda_device *device, const void *zeros)
{
    tempi_cuda_address made = 0;
    const tempi_cuda_stream stream = device->streams[TEMPI_PACK];
    if (TEMPI_CU(MemAlloc, &made, BYTES) != TEMPI_OK)
        return 0;
    if (TEMPI_CU(MemcpyAsync, made, (uintptr_t)zeros, BYTES, stream) == TEMPI_OK &&
        TEMPI_CU(StreamSynchronize, stream) == TEMPI_OK)
        return made;
    (void)TEMPI_CU(MemFree, made);
    return 0;
}

static void allocate(tempi_cuda_device *device)
{
    void *words = NULL;
    bool registered = false;
    tempi_cuda_entry entry;
    if (tempi_cuda_enter_relaxed(device, &entry) != TEMPI_OK)
        return;
    if (tempi_cuda_pinned_new(device, BYTES, &words, &registered) == TEMPI_OK) {
        memset(words, 0, BYTES);
        const tempi_cuda_address counters = new_counters(device, words);
        pthread_mutex_lock(&device->lock);
        const bool first = !device->flags.words;
        if (first)
            add_all(&device->flags, words, registered, counters);
        pthread_mutex_unlock(&device->lock);
        if (!first) {
            tempi_cuda_pinned_free(device, words, BYTES, registered);
            (void)(counters && TEMPI_CU(MemFree, counters));
        }
    } else {
        device->flags.failed = true;
    }
    tempi_cuda_leave(&entry);
}

static int take(tempi_cuda_device *device)
{
    int flag = TEMPI_CUDA_NO_FLAG;
    pthread_mutex_lock(&device->lock);
    if (device->flags.nfree > 0)
        flag = device->flags.free[--device->flags.nfree];
    pthread_mutex_unlock(&device->lock);
    return flag;
}

static int get(tempi_cuda_device *device)
{
    if (!device->flags.words && !device->flags.failed)
        allocate(device);
    const int flag = device->flags.words ? take(device) : TEMPI_CUDA_NO_FLAG;
    if (flag != TEMPI_CUDA_NO_FLAG)
        __atomic_store_n(&device->flags.words[flag], 0, __ATOMIC_RELAXED);
    return flag;
}

int tempi_cuda_flag_for_kernel(tempi_cuda_device *device, uint64_t *word, uint64_t *counter)
{
    /* Without queries of the stream a kernel that failed would be waited for without end. */
    const int flag = tempi_cu.StreamQuery ? get(device) : TEMPI_CUDA_NO_FLAG;
    if (flag == TEMPI_CUDA_NO_FLAG || !device->flags.counters) {
        if (flag != TEMPI_CUDA_NO_FLAG)
            tempi_cuda_flag_put(device, flag);
        return TEMPI_CUDA_NO_FLAG;
    }
    *word = (uintptr_t)&device->flags.words[flag];
    *counter = device->flags.counters + (uint64_t)flag * sizeof(uint32_t);
    return flag;
}

int tempi_cuda_flag_raise(tempi_cuda_device *device, tempi_cuda_stream stream)
{
    const int flag = can_write(device) ? get(device) : TEMPI_CUDA_NO_FLAG;
    if (flag == TEMPI_CUDA_NO_FLAG)
        return flag;
    uint32_t *word = &device->flags.words[flag];
    const int result = tempi_cu.StreamWriteValue32(stream, (uintptr_t)word, 1, 0);
    if (result == TEMPI_CUDA_SUCCESS)
        return flag;
    if (result == TEMPI_CUDA_NOT_SUPPORTED)
        device->flags.off = true;
    else
        (void)tempi_cuda_check(result, "cuStreamWriteValue32");
    tempi_cuda_flag_put(device, flag);
    return TEMPI_CUDA_NO_FLAG;
}

void tempi_cuda_flag_put(tempi_cuda_device *device, int flag)
{
    pthread_mutex_lock(&device->lock);
    device->flags.free[device->flags.nfree++] = flag;
    pthread_mutex_unlock(&device->lock);
}

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void tempi_cuda_flag_spin(const tempi_cuda_device *device, int flag)
{
    const int most = tempi_cuda_emulated() ? 16 : 2000;
    for (int i = 0; i < most && !tempi_cuda_flag_is_up(device, flag); ++i)
        relax();
}

void tempi_cuda_flags_free(tempi_cuda_device *device)
{
    if (device->flags.words)
        tempi_cuda_pinned_free(device, device->flags.words, BYTES, device->flags.registered);
    if (device->flags.counters)
        (void)TEMPI_CU(MemFree, device->flags.counters);
    device->flags.words = NULL;
    device->flags.counters = 0;
}

void tempi_cuda_flags_drop(tempi_cuda_device *device)
{
    if (device->flags.words)
        tempi_cuda_pinned_drop(device->flags.words, BYTES, device->flags.registered);
    device->flags.words = NULL;
}
