/* cuda.c: the CUDA driver, real or emulated (docs/emulator.md). Types and numbers are those of the
 * CUDA driver API reference. */
#include "cuda.h"
#include "halo.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long address;

enum {
    MEMORY_HOST = 1,
    MEMORY_DEVICE = 2,
    STREAM_NON_BLOCKING = 1,
    HOST_PORTABLE = 1,
    HOST_MAPPED = 2
};

/* CUDA_MEMCPY3D */
struct copy3d {
    size_t src_x, src_y, src_z, src_lod;
    int src_type;
    const void *src_host;
    address src_device;
    void *src_array, *reserved0;
    size_t src_pitch, src_height;
    size_t dst_x, dst_y, dst_z, dst_lod;
    int dst_type;
    void *dst_host;
    address dst_device;
    void *dst_array, *reserved1;
    size_t dst_pitch, dst_height;
    size_t width, height, depth;
};

#define CALLS(X)                                                     \
    X(init, "cuInit", (unsigned))                                    \
    X(error_name, "cuGetErrorName", (int, const char **))            \
    X(count, "cuDeviceGetCount", (int *))                            \
    X(get, "cuDeviceGet", (int *, int))                              \
    X(name, "cuDeviceGetName", (char *, int, int))                   \
    X(retain, "cuDevicePrimaryCtxRetain", (void **, int))            \
    X(set, "cuCtxSetCurrent", (void *))                              \
    X(finish, "cuCtxSynchronize", (void))                            \
    X(allocate, "cuMemAlloc_v2", (address *, size_t))                \
    X(release, "cuMemFree_v2", (address))                            \
    X(host_allocate, "cuMemHostAlloc", (void **, size_t, unsigned))  \
    X(host_release, "cuMemFreeHost", (void *))                       \
    X(copy, "cuMemcpy", (address, address, size_t))                  \
    X(copy3d, "cuMemcpy3DAsync_v2", (const struct copy3d *, void *)) \
    X(stream, "cuStreamCreate", (void **, unsigned))                 \
    X(wait, "cuStreamSynchronize", (void *))

static struct {
#define MEMBER(member, symbol, parameters) int(*member) parameters;
    CALLS(MEMBER)
#undef MEMBER
} cu;

static struct {
    int emulated;
    char name[256];
    char reason[512];
    void *stream;
} device;

/* ISO C has no cast from a data to a function pointer; POSIX promises that the bytes are the
 * same. */
static int bind_call(void *library, const char *symbol, void *slot)
{
    void *found = dlsym(library, symbol);
    memcpy(slot, &found, sizeof found);
    if (!found)
        snprintf(device.reason, sizeof device.reason, "the CUDA driver has no %s", symbol);
    return found != NULL;
}

static int bind_all(void *library)
{
#define BIND(member, symbol, parameters) &&bind_call(library, symbol, &cu.member)
    return 1 CALLS(BIND);
#undef BIND
}

static const char *error_name(int result)
{
    const char *name = NULL;
    return cu.error_name(result, &name) == 0 && name ? name : "unknown error";
}

static void must(int result, const char *what)
{
    if (result != 0)
        fail("%s: %s (%d)", what, error_name(result), result);
}

/* The emulated driver is in the directory of the preloaded engine. */
static void *open_emulated(void)
{
    char path[4096];
    Dl_info engine;
    void *inside = dlsym(RTLD_DEFAULT, "tempi_version");
    if (!inside || !dladdr(inside, &engine) || !engine.dli_fname) {
        snprintf(
            device.reason, sizeof device.reason,
            "TEMPI_CUDA_DRIVER=emulated: the emulated device is found beside tempi, which is not preloaded");
        return NULL;
    }
    const char *slash = strrchr(engine.dli_fname, '/');
    const int folder = slash ? (int)(slash - engine.dli_fname) + 1 : 0;
    snprintf(path, sizeof path, "%.*slibtempi-cuda.so", folder, engine.dli_fname);
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void *open_driver(void)
{
    const char *wanted = getenv("TEMPI_CUDA_DRIVER");
    device.emulated = wanted && strcmp(wanted, "emulated") == 0;
    void *library = device.emulated ? open_emulated()
                                    : dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library && !device.reason[0]) {
        const char *why = dlerror();
        snprintf(device.reason, sizeof device.reason, "no CUDA driver: %s%s",
                 why ? why : "not found",
                 device.emulated
                     ? ""
                     : "; TEMPI_CUDA_DRIVER=emulated under `tempi run` checks without a GPU");
    }
    return library;
}

static int local_rank(MPI_Comm comm)
{
    MPI_Comm node;
    int rank;
    MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &rank);
    MPI_Comm_free(&node);
    return rank;
}

static int take_device(int rank)
{
    int count = 0, handle;
    void *context;
    int result = cu.init(0);
    if (result == 0)
        result = cu.count(&count);
    if (result != 0 || count == 0) {
        snprintf(device.reason, sizeof device.reason, "no CUDA device: %s",
                 result != 0 ? error_name(result) : "there are 0");
        return 1;
    }
    must(cu.get(&handle, rank % count), "cuDeviceGet");
    must(cu.name(device.name, (int)sizeof device.name, handle), "cuDeviceGetName");
    /* However the emulator was loaded, its device name says so. */
    device.emulated = device.emulated || strstr(device.name, "EMULATED");
    must(cu.retain(&context, handle), "cuDevicePrimaryCtxRetain");
    must(cu.set(context), "cuCtxSetCurrent");
    must(cu.stream(&device.stream, STREAM_NON_BLOCKING), "cuStreamCreate");
    return 0;
}

const char *cuda_start(MPI_Comm comm)
{
    const int rank = local_rank(comm);
    void *library = open_driver();
    if (!library || !bind_all(library) || take_device(rank))
        return device.reason;
    return NULL;
}

int cuda_emulated(void)
{
    return device.emulated;
}

const char *cuda_device_name(void)
{
    return device.name;
}

static address address_of(const void *pointer)
{
    return (address)(uintptr_t)pointer;
}

void *cuda_allocate(size_t bytes)
{
    address made = 0;
    return cu.allocate(&made, bytes) == 0 ? (void *)(uintptr_t)made : NULL;
}

void cuda_release(void *data)
{
    must(cu.release(address_of(data)), "cuMemFree");
}

void *cuda_pinned_allocate(size_t bytes)
{
    void *made = NULL;
    must(cu.host_allocate(&made, bytes, HOST_PORTABLE | HOST_MAPPED), "cuMemHostAlloc");
    return made;
}

void cuda_pinned_release(void *data)
{
    must(cu.host_release(data), "cuMemFreeHost");
}

void cuda_copy(void *to, const void *from, size_t bytes)
{
    must(cu.copy(address_of(to), address_of(from), bytes), "cuMemcpy");
    /* A copy of pageable memory may only have been staged so far. */
    must(cu.finish(), "cuCtxSynchronize");
}

void cuda_copy_box(const struct cuda_box *to, const struct cuda_box *from, size_t width,
                   size_t rows, size_t planes)
{
    const struct copy3d copy = {
        .src_x = from->x,
        .src_y = from->y,
        .src_z = from->z,
        .src_pitch = from->pitch,
        .src_height = from->height,
        .src_type = from->on_host ? MEMORY_HOST : MEMORY_DEVICE,
        .src_host = from->base,
        .src_device = address_of(from->base),
        .dst_x = to->x,
        .dst_y = to->y,
        .dst_z = to->z,
        .dst_pitch = to->pitch,
        .dst_height = to->height,
        .dst_type = to->on_host ? MEMORY_HOST : MEMORY_DEVICE,
        .dst_host = to->base,
        .dst_device = address_of(to->base),
        .width = width,
        .height = rows,
        .depth = planes,
    };
    must(cu.copy3d(&copy, device.stream), "cuMemcpy3DAsync");
}

void cuda_wait(void)
{
    must(cu.wait(device.stream), "cuStreamSynchronize");
}
