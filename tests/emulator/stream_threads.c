/* stream_threads.c: several threads use streams, events and memory at once; for the sanitizers. */
#include "emulator/driver/api.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { THREADS = 4, ROUNDS = 60, BYTES = 5000, NOT_READY = 600 };

CUresult cuInit(unsigned flags);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t size);
CUresult cuMemFree_v2(CUdeviceptr pointer);
CUresult cuMemHostAlloc(void **pointer, size_t size, unsigned flags);
CUresult cuMemFreeHost(void *pointer);
CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream);
CUresult cuMemsetD8Async(CUdeviceptr pointer, unsigned char value, size_t count, CUstream stream);
CUresult cuStreamCreate(CUstream *stream, unsigned flags);
CUresult cuStreamSynchronize(CUstream stream);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
CUresult cuEventCreate(CUevent *event, unsigned flags);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventQuery(CUevent event);
CUresult cuEventDestroy_v2(CUevent event);

static CUcontext context;

/* Fills device memory in one stream and copies it to the host in another; the number of wrong
 * bytes. */
static long round_trip(unsigned char value, unsigned flags)
{
    CUdeviceptr device;
    CUstream first;
    CUstream second;
    CUevent event;
    void *host;
    long wrong = 0;
    wrong += cuMemAlloc_v2(&device, BYTES) + cuMemHostAlloc(&host, BYTES, 3) +
             cuEventCreate(&event, 2) + cuStreamCreate(&first, flags) + cuStreamCreate(&second, 1);
    memset(host, ~value, BYTES);
    wrong += cuMemsetD8Async(device, value, BYTES, first) + cuEventRecord(event, first) +
             cuStreamWaitEvent(second, event, 0) +
             cuMemcpyAsync((CUdeviceptr)(uintptr_t)host, device, BYTES, second);
    while (value % 3 == 0 && cuEventQuery(event) == NOT_READY) {
    }
    wrong += cuStreamSynchronize(second);
    for (int i = 0; i < BYTES; i++)
        wrong += ((unsigned char *)host)[i] != value;
    return wrong + cuEventDestroy_v2(event) + cuStreamDestroy_v2(first) +
           cuStreamDestroy_v2(second) + cuMemFree_v2(device) + cuMemFreeHost(host);
}

static void *work(void *number)
{
    long *const wrong = number;
    *wrong = cuCtxSetCurrent(context);
    for (unsigned i = 0; i < ROUNDS; i++)
        *wrong += round_trip((unsigned char)(i + 1), i & 1);
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    long wrong[THREADS];
    long sum = cuInit(0) + cuDevicePrimaryCtxRetain(&context, 0);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, &wrong[i]);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        sum += wrong[i];
    }
    printf("%ld wrong\n", sum);
    return sum != 0;
}
