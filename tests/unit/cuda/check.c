#include "check.h"
#include "base/config.h"
#include "cuda/backend.h"
#include "fake_plan.h"
#include "memory/kind.h"
#include <dlfcn.h>
#include <string.h>

fake_control *driver;

void driver_load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    driver = dlsym(library, "fake");
    driver->kernel = fake_kernel;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
    CHECK(init(0) == 0);
}

void driver_begin(const char *path)
{
    driver_load(path);
    tempi_config_load();
    tempi_config.launch_at_once = true;
    tempi_memory_start();
    tempi_cuda_backend_start();
    CHECK(tempi_cuda_probe() == TEMPI_CUDA_UP);
}

static const tempi_layout *canonical(tempi_layout *raw)
{
    const tempi_layout *layout;
    CHECK(tempi_layout_canonical(raw, NULL, NULL, &layout) == TEMPI_OK);
    tempi_layout_free(raw);
    return layout;
}

static tempi_layout *bytes(int64_t n)
{
    tempi_layout *raw;
    CHECK(tempi_layout_bytes(n, &raw) == TEMPI_OK);
    return raw;
}

const tempi_layout *layout_vector(int64_t count, int64_t run, int64_t stride)
{
    tempi_layout *inner = bytes(1), *raw;
    CHECK(tempi_layout_hvector(count, run, stride, inner, &raw) == TEMPI_OK);
    tempi_layout_free(inner);
    return canonical(raw);
}

const tempi_layout *layout_list(int64_t count, int64_t run)
{
    int64_t *places = malloc((size_t)count * sizeof *places), at = 3;
    uint32_t chance = 12345; /* a period would make it regular */
    for (int64_t i = 0; i < count; i++) {
        places[i] = at;
        chance = chance * 1664525u + 1013904223u;
        at += run + 1 + (chance >> 20) % 11;
    }
    tempi_layout *inner = bytes(1), *raw;
    CHECK(tempi_layout_hindexed_block(count, run, places, inner, &raw) == TEMPI_OK);
    tempi_layout_free(inner);
    free(places);
    return canonical(raw);
}

const tempi_layout *layout_dense(int64_t n)
{
    return canonical(bytes(n));
}

/* Copies of its first period: byte by byte, with the sanitizers' checks, it is most of the time of
 * the tests. */
void pattern(void *to, int64_t n, int seed)
{
    enum { PERIOD = 251 * 256 };
    unsigned char *const bytes = to;
    for (int64_t i = 0; i < n && i < PERIOD; i++)
        bytes[i] = (unsigned char)(i * 7 + i / 251 + seed);
    for (int64_t i = PERIOD; i < n; i += PERIOD)
        memcpy(bytes + i, bytes, (size_t)(n - i < PERIOD ? n - i : PERIOD));
}

char *packed_bytes(const tempi_layout *layout, int64_t count, const void *mem)
{
    const int64_t n = layout->size * count;
    char *out = malloc((size_t)n);
    tempi_pack(layout, count, mem, 0, n, out);
    return out;
}

int64_t stat_value(const char *name)
{
    for (int i = 0; i < tempi_stats_count(); i++)
        if (strcmp(tempi_stats_name(i), name) == 0)
            return (int64_t)tempi_stats_value(i);
    CHECK(!"a counter of that name");
    return -1;
}
