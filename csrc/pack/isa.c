/* isa.c: chooses the kernels for this processor, once; TEMPI_ISA names a lower instruction set. */
#include "base/config.h"
#include "base/log.h"
#include "pack/nest.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

extern const tempi_kernels tempi_kernels_scalar;
#if defined(__x86_64__)
extern const tempi_kernels tempi_kernels_sse2;
extern const tempi_kernels tempi_kernels_avx2;
extern const tempi_kernels tempi_kernels_avx512;
#elif defined(__aarch64__)
extern const tempi_kernels tempi_kernels_neon;
#endif

#if defined(__x86_64__)
typedef struct x86_features {
    int avx2, avx512;
} x86_features;

/* Uses cpuid: __builtin_cpu_supports adds a constructor that every process inheriting LD_PRELOAD
 * pays for (50 us in a virtual machine, where each cpuid leaves the guest). */
static x86_features x86_detect(void)
{
    const unsigned isa_avx2 = bit_AVX2 | bit_BMI2;
    const unsigned isa_avx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    const unsigned state_avx = 0x06, state_avx512 = 0xE6; /* registers that the system saves */
    unsigned a, b, c, d, saved, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return (x86_features){0, 0};
    __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return (x86_features){0, 0};
    const int avx2 = (saved & state_avx) == state_avx && (b & isa_avx2) == isa_avx2;
    return (x86_features){avx2, avx2 && (saved & state_avx512) == state_avx512 &&
                                    (b & isa_avx512) == isa_avx512 && (c & bit_AVX512VBMI)};
}
#endif

enum { LEVELS_MAX = 4 };

/* Lists the ISAs that this processor has, best first; returns their number. */
static int isa_list(const tempi_kernels *levels[LEVELS_MAX])
{
    int n = 0;
#if defined(__x86_64__)
    const x86_features features = x86_detect();
    if (features.avx512)
        levels[n++] = &tempi_kernels_avx512;
    if (features.avx2)
        levels[n++] = &tempi_kernels_avx2;
    levels[n++] = &tempi_kernels_sse2;
#elif defined(__aarch64__)
    levels[n++] = &tempi_kernels_neon;
#endif
    levels[n++] = &tempi_kernels_scalar;
    return n;
}

/* The kernels of that ISA; the best for NULL; returns NULL if this processor lacks it. */
static const tempi_kernels *isa_find(const char *name)
{
    const tempi_kernels *levels[LEVELS_MAX];
    const int n = isa_list(levels);
    if (!name)
        return levels[0];
    for (int i = 0; i < n; i++)
        if (strcmp(name, levels[i]->name) == 0)
            return levels[i];
    return NULL;
}

/* Two threads may both choose; they make the same choice. */
static _Atomic(const tempi_kernels *) isa_chosen;
_Atomic unsigned tempi_kernels_epoch;

static const tempi_kernels *isa_choose(void)
{
    const char *given_by;
    const char *name = tempi_config_find("TEMPI_ISA", &given_by);
    const tempi_kernels *level = isa_find(name);
    if (!level) {
        level = isa_find(NULL);
        TEMPI_WARN_ONCE("%s=%s: this processor does not support that instruction set; %s is used",
                        given_by, name, level->name);
    }
    atomic_store_explicit(&isa_chosen, level, memory_order_relaxed);
    return level;
}

const tempi_kernels *tempi_kernels_get(void)
{
    const tempi_kernels *level = atomic_load_explicit(&isa_chosen, memory_order_relaxed);
    return level ? level : isa_choose();
}

int tempi_kernels_use(const char *name)
{
    const tempi_kernels *level = isa_find(name);
    if (!level)
        return TEMPI_ERR_UNSUPPORTED;
    atomic_store_explicit(&isa_chosen, level, memory_order_relaxed);
    atomic_fetch_add_explicit(&tempi_kernels_epoch, 1, memory_order_relaxed);
    return TEMPI_OK;
}

const char *tempi_isa_name(void)
{
    return tempi_kernels_get()->name;
}
