#include "cuda/completion.h"
#include "cuda/pinned.h"

enum { BYTES = TEMPI_CUDA_FLAGS * sizeof(uint32_t) };

static bool can_write(const tempi_cuda_device *device)
{
    return !device->flags.off && tempi_cu.StreamWriteValue32 && tempi_cu.StreamQuery;
}

/* Caller holds the lock. */
static void add_all(tempi_cuda_flags *flags, void *words, bool registered)
{
    flags->words = words;
    flags->registered = registered;
    for (int i = 0; i < TEMPI_CUDA_FLAGS; ++i)
        flags->free[i] = TEMPI_CUDA_FLAGS - 1 - i;
    flags->nfree = TEMPI_CUDA_FLAGS;
}

static void allocate(tempi_cuda_device *device)
{
    void *words = NULL;
    bool registered = false;
    if (tempi_cuda_pinned_new(device, BYTES, &words, &registered) != TEMPI_OK) {
        device->flags.off = true;
        return;
    }
    pthread_mutex_lock(&device->lock);
    const bool first = !device->flags.words;
    if (first)
        add_all(&device->flags, words, registered);
    pthread_mutex_unlock(&device->lock);
    if (!first)
        tempi_cuda_pinned_free(device, words, BYTES, registered);
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

int tempi_cuda_flag_raise(tempi_cuda_device *device, tempi_cuda_stream stream)
{
    if (can_write(device) && !device->flags.words)
        allocate(device);
    const int flag = can_write(device) ? take(device) : TEMPI_CUDA_NO_FLAG;
    if (flag == TEMPI_CUDA_NO_FLAG)
        return flag;
    uint32_t *word = &device->flags.words[flag];
    __atomic_store_n(word, 0, __ATOMIC_RELAXED);
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
    device->flags.words = NULL;
}

void tempi_cuda_flags_drop(tempi_cuda_device *device)
{
    if (device->flags.words)
        tempi_cuda_pinned_drop(device->flags.words, BYTES, device->flags.registered);
    device->flags.words = NULL;
}
