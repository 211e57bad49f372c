// attainable: packs and unpacks of vectors by kernels made for one shape, over orders of words, kinds of loads and stores, and
// threads of a block: what a kernel can reach (docs/data/gpu/CARD/attainable.txt). Nothing is checked, times alone.
//     nvcc -O3 -std=c++17 -gencode arch=compute_90,code=sm_90 attainable.cu -o attainable && ./attainable times.csv
// 17 GiB of the card's memory; 20 seconds on an H200. Lines: op,word,run,stride,bytes,order,load,store,threads,us.
#include <cstdio>
#include <cstdint>
#include <cstdlib>
#include <algorithm>
#include <vector>
#define CK(x) do { cudaError_t e = (x); if (e) { fprintf(stderr, "%s: %s\n", #x, cudaGetErrorString(e)); exit(1);} } while (0)
template <int LD> __device__ __forceinline__ uint4 ld(const uint4 *p, uint64_t pol) {
    uint4 v;
    if (LD == 0) asm volatile("ld.global.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(v.x),"=r"(v.y),"=r"(v.z),"=r"(v.w) : "l"(p));
    if (LD == 1) asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(v.x),"=r"(v.y),"=r"(v.z),"=r"(v.w) : "l"(p));
    if (LD == 2) asm volatile("ld.global.cs.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(v.x),"=r"(v.y),"=r"(v.z),"=r"(v.w) : "l"(p));
    if (LD == 3) asm volatile("ld.global.L2::cache_hint.v4.u32 {%0,%1,%2,%3},[%4],%5;" : "=r"(v.x),"=r"(v.y),"=r"(v.z),"=r"(v.w) : "l"(p),"l"(pol));
    if (LD == 4) asm volatile("ld.global.L2::256B.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(v.x),"=r"(v.y),"=r"(v.z),"=r"(v.w) : "l"(p));
    return v;
}
template <int ST> __device__ __forceinline__ void st(uint4 *p, uint4 v, uint64_t pol) {
    if (ST == 0) asm volatile("st.global.v4.u32 [%4],{%0,%1,%2,%3};" :: "r"(v.x),"r"(v.y),"r"(v.z),"r"(v.w),"l"(p));
    if (ST == 1) asm volatile("st.global.cs.v4.u32 [%4],{%0,%1,%2,%3};" :: "r"(v.x),"r"(v.y),"r"(v.z),"r"(v.w),"l"(p));
    if (ST == 2) asm volatile("st.global.L2::cache_hint.v4.u32 [%4],{%0,%1,%2,%3},%5;" :: "r"(v.x),"r"(v.y),"r"(v.z),"r"(v.w),"l"(p),"l"(pol));
    if (ST == 3) asm volatile("st.global.L1::no_allocate.v4.u32 [%4],{%0,%1,%2,%3};" :: "r"(v.x),"r"(v.y),"r"(v.z),"r"(v.w),"l"(p));
}
template <int LD> __device__ __forceinline__ unsigned long long ld(const unsigned long long *p, uint64_t) { return *p; }
template <int ST> __device__ __forceinline__ void st(unsigned long long *p, unsigned long long v, uint64_t) { *p = v; }
template <int LD> __device__ __forceinline__ unsigned ld(const unsigned *p, uint64_t) { return *p; }
template <int ST> __device__ __forceinline__ void st(unsigned *p, unsigned v, uint64_t) { *p = v; }
template <int LD> __device__ __forceinline__ unsigned short ld(const unsigned short *p, uint64_t) { return *p; }
template <int ST> __device__ __forceinline__ void st(unsigned short *p, unsigned short v, uint64_t) { *p = v; }

// N words a thread; ORDER 0: a block's words together, threads apart by one; 1: in steps of the grid; 2: a thread's words together
template <class T, int N, int ORDER, int LD, int ST, bool UNPACK>
__global__ void k(char *mem, T *packed, unsigned words, unsigned shift, uint64_t stride) {
    uint64_t pol = 0;
    if (LD == 3 || ST == 2) asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(pol));
    const unsigned threads = gridDim.x * blockDim.x;
    const unsigned mask = (1u << shift) - 1;
    for (unsigned base = ORDER == 0 ? blockIdx.x * blockDim.x * N + threadIdx.x
                       : ORDER == 1 ? blockIdx.x * blockDim.x + threadIdx.x
                                    : (blockIdx.x * blockDim.x + threadIdx.x) * N;
         base < words; base += threads * N) {
        T v[N]; 
        #pragma unroll
        for (int j = 0; j < N; j++) {
            unsigned i = base + j * (ORDER == 0 ? blockDim.x : ORDER == 1 ? threads : 1);
            if (i >= words) i = words - 1;
            T *m = (T *)(mem + (uint64_t)(i >> shift) * stride) + (i & mask);
            v[j] = UNPACK ? ld<LD>(packed + i, pol) : ld<LD>(m, pol);
        }
        #pragma unroll
        for (int j = 0; j < N; j++) {
            unsigned i = base + j * (ORDER == 0 ? blockDim.x : ORDER == 1 ? threads : 1);
            if (i < words) {
                T *m = (T *)(mem + (uint64_t)(i >> shift) * stride) + (i & mask);
                if (UNPACK) st<ST>(m, v[j], pol); else st<ST>(packed + i, v[j], pol);
            }
        }
    }
}
static char *mem, *packed; static cudaEvent_t e0, e1; static int sms;
static FILE *out;
template <class T, int N, int ORDER, int LD, int ST, bool U> void one(size_t bytes, int run, uint64_t stride, int T_) {
    unsigned words = bytes / sizeof(T), shift = 31 - __builtin_clz(run / (int)sizeof(T));
    unsigned grid = (words + T_ * N - 1) / (T_ * N);
    if (ORDER == 1) { unsigned most = sms * (2048 / T_); if (grid > most) grid = most; }
    std::vector<float> all;
    float est = 1; int loops = 3;
    for (int r = 0; r < 6; r++) {
        CK(cudaEventRecord(e0));
        for (int l = 0; l < loops; l++) k<T, N, ORDER, LD, ST, U><<<grid, T_>>>(mem, (T *)packed, words, shift, stride);
        CK(cudaEventRecord(e1)); CK(cudaEventSynchronize(e1));
        float ms; CK(cudaEventElapsedTime(&ms, e0, e1)); ms /= loops;
        if (r == 0) { est = ms; loops = std::max(2, std::min(20, (int)(1.0f / est))); } else all.push_back(ms);
    }
    std::sort(all.begin(), all.end());
    static const char *orders[] = {"block", "grid", "thread"};
    fprintf(out, "%s,%d,%d,%llu,%zu,%s%d,%d,%d,%d,%.2f\n", U ? "unpack" : "pack", (int)sizeof(T), run, (unsigned long long)stride, bytes, orders[ORDER], N, LD, ST, T_, 1e3 * all[all.size() / 2]);
}
template <class T, int N, int ORDER, int LD, int ST> void dirs(size_t b, int r, uint64_t s, int t) { one<T,N,ORDER,LD,ST,false>(b,r,s,t); one<T,N,ORDER,LD,ST,true>(b,r,s,t); }
template <class T, int LD, int ST> void orders(size_t b, int r, uint64_t s) {
    for (int t : {128, 256, 512, 1024}) dirs<T,1,0,LD,ST>(b,r,s,t);
    for (int t : {128, 256, 512}) { dirs<T,2,0,LD,ST>(b,r,s,t); dirs<T,4,0,LD,ST>(b,r,s,t); }
    dirs<T,4,1,LD,ST>(b,r,s,256);
    dirs<T,4,2,LD,ST>(b,r,s,256);
    dirs<T,8,0,LD,ST>(b,r,s,128);
}
int main(int argc, char **argv) {
    out = fopen(argv[1], "w");
    CK(cudaSetDevice(0)); cudaDeviceProp p; CK(cudaGetDeviceProperties(&p, 0)); sms = p.multiProcessorCount;
    size_t span = 17ull << 30;
    CK(cudaMalloc(&mem, span)); CK(cudaMalloc(&packed, 256ull << 20)); CK(cudaMemset(mem, 1, span)); CK(cudaMemset(packed, 1, 256ull << 20));
    CK(cudaEventCreate(&e0)); CK(cudaEventCreate(&e1));
    fprintf(out, "# %s, %d multiprocessors\nop,word,run,stride,bytes,order,load,store,threads,us\n", p.name, sms);
    const size_t B = 64ull << 20;
    for (int run : {16, 32, 64, 128, 256, 512, 4096}) for (uint64_t stride : {(uint64_t)2 * run, (uint64_t)512, (uint64_t)4096}) {
        if ((stride != 2ull * run && stride <= 2ull * run)) continue;
        orders<uint4,0,0>(B, run, stride); orders<uint4,1,0>(B, run, stride); orders<uint4,1,1>(B, run, stride);
        orders<uint4,2,1>(B, run, stride); orders<uint4,3,0>(B, run, stride); orders<uint4,3,2>(B, run, stride);
        orders<uint4,0,2>(B, run, stride); orders<uint4,4,0>(B, run, stride); orders<uint4,1,3>(B, run, stride);
        fflush(out);
    }
    for (size_t b : {B, B / 4}) {
        for (uint64_t s : {16, 512}) orders<unsigned long long,0,0>(b, 8, s);
        for (uint64_t s : {8, 512}) orders<unsigned,0,0>(b, 4, s);
        orders<unsigned short,0,0>(b, 2, 4);
        for (uint64_t s : {512, 4096}) { orders<uint4,0,0>(B / 4, 32, s); orders<uint4,0,0>(B / 4, 64, s); }
    }
    fclose(out); return 0;
}
