// Compiled by: nvcc -ptx -arch=sm_70|80 sample.cu; the .version line is lowered to 8.0.
#include <stdint.h>

extern "C" __global__ void pack(const uint4 *__restrict__ src, uint4 *dst, uint32_t n, int64_t stride, uint32_t run)
{
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        dst[i] = *(const uint4 *)((const char *)src + i / run * stride + i % run * 16);
}

struct Box {
    int64_t n[4];
    int64_t stride[4];
    int dims;
};

// The bytes of a box of any dimension, in order; a parameter that is indexed by a variable.
extern "C" __global__ void gather(Box box, const uint8_t *src, uint8_t *dst, int64_t total)
{
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= total)
        return;
    int64_t at = 0, rest = i;
    for (int d = 0; d < box.dims; d++) {
        at += rest % box.n[d] * box.stride[d];
        rest /= box.n[d];
    }
    dst[i] = src[at];
}

extern "C" __global__ void __launch_bounds__(256) transpose(const uint16_t *src, uint16_t *dst, int n)
{
    __shared__ uint16_t tile[32][33];
    const int x = blockIdx.x * 32, y = blockIdx.y * 32;
    for (int j = threadIdx.y; j < 32; j += 8)
        if (x + threadIdx.x < n && y + j < n)
            tile[j][threadIdx.x] = src[(y + j) * n + x + threadIdx.x];
    __syncthreads();
    for (int j = threadIdx.y; j < 32; j += 8)
        if (y + threadIdx.x < n && x + j < n)
            dst[(x + j) * n + y + threadIdx.x] = tile[threadIdx.x][j];
}

// A sum over a warp by shuffles, and a branch of many ways.
extern "C" __global__ void sums(const int *src, double *dst, int way)
{
    int v = src[blockIdx.x * 32 + threadIdx.x];
    for (int d = 16; d > 0; d /= 2)
        v += __shfl_down_sync(0xffffffff, v, d);
    double r = v;
    switch (way) {
    case 0: r = -r; break;
    case 1: r = r * r; break;
    case 2: r = sqrt(fabs(r)); break;
    case 3: r = r / 3; break;
    case 4: r = (float)r; break;
    case 5: r = __popc(__ballot_sync(0xffffffff, src[threadIdx.x] > 0)); break;
    }
    if (threadIdx.x == 0)
        dst[blockIdx.x] = r;
}
