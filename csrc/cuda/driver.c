#include "cuda/driver.h"
#include "base/config.h"
#include "base/loaded.h"
#include "base/log.h"
#include "base/stats.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

tempi_cuda_driver tempi_cu;
_Atomic int tempi_cuda_state;

/* What tempi itself opens, and the beginning of every name of the driver. Programs open it as
 * libcuda.so (Numba, LLVM's OpenMP), libcuda.so.1 (the CUDA runtime), by its version or by a path;
 * its soname is libcuda.so.1 in all cases. */
static const char library_name[] = "libcuda.so.1";
static const char any_name[] = "libcuda.so";
static const char emulator_name[] = "libtempi-cuda.so";
static const char emulator_title[] = "emulated: CUDA on the CPU, a test device";

static pthread_mutex_t filling = PTHREAD_MUTEX_INITIALIZER;
static bool possible, emulated, forks_watched;

static void state_set(tempi_cuda_status state)
{
    atomic_store_explicit(&tempi_cuda_state, (int)state, memory_order_release);
}

static int state_get(void)
{
    return atomic_load_explicit(&tempi_cuda_state, memory_order_acquire);
}

/* ---- filling the table ----------------------------------------------------------------------- */

static const struct {
    size_t offset;
    int needed;
    const char *symbol;
} calls[] = {
#define ROW(needed, member, symbol, parameters) \
    {offsetof(tempi_cuda_driver, member), needed, symbol},
    TEMPI_CUDA_CALLS(ROW)
#undef ROW
};

/* The first needed symbol that the library lacks, or NULL. */
static const char *fill(void *library)
{
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; ++i) {
        void *found = dlsym(library, calls[i].symbol);
        if (!found && calls[i].needed)
            return calls[i].symbol;
        memcpy((char *)&tempi_cu + calls[i].offset, &found, sizeof found);
    }
    return NULL;
}

void tempi_cuda_after_fork(void)
{
    if (state_get() != TEMPI_CUDA_ABSENT)
        state_set(TEMPI_CUDA_OFF);
}

/* Caller holds `filling`; the library stays loaded from now on. */
static void use(void *library)
{
    const char *lacking = fill(library);
    if (lacking)
        TEMPI_LOG(TEMPI_LOG_WARN,
                  "the CUDA driver has no %s: device memory is left to the MPI library", lacking);
    if (!forks_watched)
        forks_watched = pthread_atfork(NULL, NULL, tempi_cuda_after_fork) == 0;
    state_set(lacking ? TEMPI_CUDA_OFF : TEMPI_CUDA_UP);
}

/* ---- the emulator ---------------------------------------------------------------------------- */

/* The emulator lies beside the library that contains this code. */
static void *emulator_open(void)
{
    Dl_info own;
    char path[PATH_MAX];
    if (!dladdr((void *)&tempi_cu, &own) || !own.dli_fname)
        return NULL;
    const char *slash = strrchr(own.dli_fname, '/');
    const int folder = slash ? (int)(slash - own.dli_fname) + 1 : 0;
    if (snprintf(path, sizeof path, "%.*s%s", folder, own.dli_fname, emulator_name) >=
        (int)sizeof path)
        return NULL;
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void emulator_start(void)
{
    void *library = emulator_open();
    if (!library) {
        TEMPI_LOG(TEMPI_LOG_WARN, "TEMPI_CUDA_DRIVER=emulated: %s", dlerror());
        return;
    }
    emulated = true;
    use(library);
    TEMPI_LOG(TEMPI_LOG_WARN, "%s; no time measured on it says anything about a GPU",
              emulator_title);
}

/* ---- start and probe ------------------------------------------------------------------------- */

/* Whether a driver can exist: the device files of a PC, of WSL, of a Jetson. The first CUDA program
 * after a boot makes those of a PC by nvidia-modprobe, which may be later than this. */
static bool machine_has_gpu(void)
{
    static const char *const files[] = {"/dev/nvidiactl", "/dev/dxg", "/dev/nvmap",
                                        "/proc/driver/nvidia", "/usr/bin/nvidia-modprobe"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; ++i)
        if (access(files[i], F_OK) == 0)
            return true;
    return false;
}

static tempi_watch watch = {any_name, 0};

static void start(void)
{
    const char *wanted = tempi_config.cuda_driver;
    if (wanted && strcmp(wanted, "none") == 0)
        return;
    if (wanted && strcmp(wanted, "emulated") == 0) {
        emulator_start();
        possible = emulated;
        return;
    }
    if (wanted)
        TEMPI_LOG(TEMPI_LOG_WARN, "TEMPI_CUDA_DRIVER=%s: neither emulated nor none; ignored",
                  wanted);
    possible = possible || machine_has_gpu() || tempi_watch_probe(&watch, NULL, 0);
}

void tempi_cuda_start(void)
{
    static bool started;
    tempi_config_load();
    pthread_mutex_lock(&filling);
    if (!started)
        start();
    started = true;
    pthread_mutex_unlock(&filling);
}

int tempi_cuda_probe(void)
{
    char path[PATH_MAX];
    const int state = state_get();
    if (state != TEMPI_CUDA_ABSENT || !possible ||
        !tempi_watch_probe(&watch, path, (int)sizeof path))
        return state;
    pthread_mutex_lock(&filling);
    if (state_get() == TEMPI_CUDA_ABSENT) {
        void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
        if (library)
            use(library);
    }
    pthread_mutex_unlock(&filling);
    return state_get();
}

int tempi_cuda_load(void)
{
    tempi_cuda_start();
    if (tempi_cuda_probe() == TEMPI_CUDA_ABSENT && !tempi_config.cuda_driver) {
        possible = dlopen(library_name, RTLD_NOW | RTLD_GLOBAL) != NULL;
        tempi_cuda_probe();
    }
    if (!tempi_cuda_up())
        return TEMPI_ERR_UNSUPPORTED;
    return TEMPI_CU(Init, 0);
}

bool tempi_cuda_possible(void)
{
    return possible;
}

void tempi_cuda_assume_possible(void)
{
    possible = true;
}

bool tempi_cuda_emulated(void)
{
    return emulated;
}

const char *tempi_cuda_driver_name(void)
{
    if (emulated)
        return emulator_title;
    return state_get() == TEMPI_CUDA_ABSENT ? "none" : library_name;
}

/* ---- results --------------------------------------------------------------------------------- */

/* After these no call of the process, or none in that context, can succeed (CUDA driver API,
 * CUresult: "the process must be terminated and relaunched"). */
static bool is_sticky(int result)
{
    switch (result) {
    case TEMPI_CUDA_DEINITIALIZED:
    case 46:  /* DEVICE_UNAVAILABLE */
    case 214: /* ECC_UNCORRECTABLE */
    case 220: /* NVLINK_UNCORRECTABLE */
    case 226: /* CONTAINED */
    case 700: /* ILLEGAL_ADDRESS */
    case 702: /* LAUNCH_TIMEOUT */
    case 710: /* ASSERT */
    case 714: /* HARDWARE_STACK_ERROR */
    case 715: /* ILLEGAL_INSTRUCTION */
    case 716: /* MISALIGNED_ADDRESS */
    case 717: /* INVALID_ADDRESS_SPACE */
    case 718: /* INVALID_PC */
    case 719: /* LAUNCH_FAILED */
    case 721: /* TENSOR_MEMORY_LEAK */
    case 806: /* MPS_RPC_FAILURE */
    case 810: /* MPS_CLIENT_TERMINATED */ return true;
    default: return false;
    }
}

static void lose(int level, const char *call, const char *name)
{
    int up = TEMPI_CUDA_UP;
    if (!atomic_compare_exchange_strong(&tempi_cuda_state, &up, TEMPI_CUDA_LOST))
        return;
    tempi_stat_add(TEMPI_STAT_cuda_lost, 1);
    TEMPI_LOG(level, "%s: %s; device memory is left to the MPI library from now on", call, name);
}

int tempi_cuda_check(int result, const char *call)
{
    if (__builtin_expect(result == TEMPI_CUDA_SUCCESS, 1))
        return TEMPI_OK;
    const char *name = NULL;
    tempi_stat_add(TEMPI_STAT_cuda_failures, 1);
    if (tempi_cu.GetErrorName(result, &name) != TEMPI_CUDA_SUCCESS || !name)
        name = "unknown error";
    if (result == TEMPI_CUDA_OUT_OF_MEMORY) {
        TEMPI_LOG(TEMPI_LOG_INFO, "%s: %s", call, name);
        return TEMPI_ERR_MEMORY;
    }
    if (is_sticky(result)) /* a driver that unloads at the program's end is not logged */
        lose(result == TEMPI_CUDA_DEINITIALIZED ? TEMPI_LOG_DEBUG : TEMPI_LOG_WARN, call, name);
    else
        TEMPI_LOG(TEMPI_LOG_INFO, "%s: %s (%d)", call, name, result);
    return TEMPI_ERR_DEVICE;
}
