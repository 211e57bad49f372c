#include "base/config.h"
#include "base/log.h"
#include "tempi.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

tempi_settings tempi_config;

typedef enum { FLAG, BYTES, NUMBER, TEXT, LOG_LEVEL, DISTANCE, ELSEWHERE } value_kind;

typedef struct variable {
    const char *name;
    value_kind kind;
    void *target;
    const char *help;
} variable;

/* ELSEWHERE: read by another part (named in the help), listed here so that the name is known. */
static const variable variables[] = {
    {"TEMPI_DISABLE", FLAG, &tempi_config.disable, "leave every call to the MPI library"},
    {"TEMPI_NO_PACK", FLAG, &tempi_config.no_pack, "leave MPI_Pack and MPI_Unpack to the library"},
    {"TEMPI_NO_TYPE_COMMIT", FLAG, &tempi_config.no_type_commit,
     "decode no datatype, so that none is accelerated"},
    {"TEMPI_FORCE", FLAG, &tempi_config.force,
     "carry every message that tempi can, also where the library is expected to be faster"},
    {"TEMPI_CHECK", FLAG, &tempi_config.check,
     "repeat every pack and unpack by a plain walk of the type map and report mismatches"},
    {"TEMPI_STATS", FLAG, &tempi_config.stats,
     "print statistics of all ranks at MPI_Finalize; set it on all ranks or on none"},
    {"TEMPI_STATS_FILE", TEXT, &tempi_config.stats_file,
     "write these statistics to this file at MPI_Finalize, as JSON; set it on all ranks or on none"},
    {"TEMPI_TRACE", TEXT, &tempi_config.trace,
     "write a Chrome trace to this file, with the rank appended"},
    {"TEMPI_STAGE_MAX", BYTES, &tempi_config.stage_max,
     "bound on staging memory of a process, bytes with optional K, M or G (default: the smaller of "
     "256M and 5% of memory); larger messages go to the library"},
    {"TEMPI_LOG", LOG_LEVEL, &tempi_log_level,
     "least severe messages to print on stderr: error, warning, info or debug"},
    {"TEMPI_CPU_LEVEL", ELSEWHERE, NULL,
     "highest instruction set of the host kernels: scalar, sse2, avx2, avx512 or neon"},
    {"TEMPI_TEST_DELAY", NUMBER, &tempi_config.test_delay,
     "for tests: a pack completes only after this many tests of its ticket"},
    {"TEMPI_EMULATOR_DEVICES", ELSEWHERE, NULL, "emulated CUDA: number of devices (default 1)"},
    {"TEMPI_EMULATOR_MEMORY", ELSEWHERE, NULL,
     "emulated CUDA: memory of a device, bytes (default 4G)"},
    {"TEMPI_EMULATOR_STREAMS", ELSEWHERE, NULL,
     "emulated CUDA: when work in a stream runs: deferred (default), immediate or random"},
    {"TEMPI_EMULATOR_DELAY", ELSEWHERE, NULL,
     "emulated CUDA: microseconds after which deferred work runs by itself (default 2000)"},
    {"TEMPI_EMULATOR_SEED", ELSEWHERE, NULL,
     "emulated CUDA: seed of random streams and thread orders"},
    {"TEMPI_EMULATOR_CAPABILITY", ELSEWHERE, NULL,
     "emulated CUDA: compute capability (default 9.0)"},
    {"TEMPI_EMULATOR_DRIVER", ELSEWHERE, NULL,
     "emulated CUDA: the driver's CUDA version (default 12.4)"},
    {"TEMPI_EMULATOR_MODULES", ELSEWHERE, NULL,
     "emulated CUDA: folder of additional translated PTX"},
    {"TEMPI_EMULATOR_FAIL", ELSEWHERE, NULL, "emulated CUDA: calls that are made to fail"},
    {"TEMPI_EMULATOR_REPORT", ELSEWHERE, NULL,
     "emulated CUDA: file for a report of calls and leaks at exit"},
    {"TEMPI_MODEL", TEXT, &tempi_config.model,
     "0: choose by the built-in rule; a file: choose by its tables (default: the tables of "
     "`tempi calibrate` for this machine and MPI)"},
    {"TEMPI_MODEL_UPDATE", FLAG, &tempi_config.model_update,
     "correct the tables during this run by the times of real packs and unpacks; the statistics show "
     "the corrections"},
    {"TEMPI_AUTOTUNE", FLAG, &tempi_config.autotune,
     "0: time nothing on the program's own calls; by default the first calls of each shape select the fastest kernel, "
     "and MPI_Pack and MPI_Unpack by the library or by tempi"},
    {"TEMPI_DISTANCE", DISTANCE, &tempi_config.distance,
     "tables for messages to other ranks of this node: near (same last-level cache), far (other cache), or auto: "
     "measured while messages go there (default)"},
    {"TEMPI_CACHE_DIR", ELSEWHERE, NULL,
     "folder for calibrations and the programs of `tempi bench` (default: the user's cache folder)"},
    {"TEMPI_LIBRARY", ELSEWHERE, NULL, "path of the libtempi.so that Python loads"},
    {"TEMPI_MPI_PREFIX", ELSEWHERE, NULL, "MPI installations to build for (setup.py)"},
    {"TEMPI_CUDA_DRIVER", TEXT, &tempi_config.cuda_driver,
     "emulated: CUDA on the CPU, a test device; none: leave device memory to the library "
     "(default: the driver that the program has loaded)"},
    {"TEMPI_CUDA_AWARE", NUMBER, &tempi_config.cuda_aware,
     "0 or 1: whether the MPI library is CUDA-aware (default: ask the library)"},
    {"TEMPI_DEVICE_MAX", BYTES, &tempi_config.device_max,
     "bound on tempi's buffers on one device, bytes with optional K, M or G (default: the smaller of "
     "1G and 5% of its memory)"},
    {"TEMPI_DATATYPE_ONESHOT", FLAG, &tempi_config.oneshot,
     "device memory: always one-shot: kernels pack into pinned host memory, which is sent"},
    {"TEMPI_DATATYPE_DEVICE", FLAG, &tempi_config.device,
     "device memory: always device: kernels pack into a device buffer, which is sent (needs a CUDA-aware library)"},
    {"TEMPI_DATATYPE_STAGED", FLAG, &tempi_config.staged,
     "device memory: always staged: kernels pack into a device buffer, which is copied to the host and sent"},
    {"TEMPI_DATATYPE_PIPELINED", FLAG, &tempi_config.pipelined,
     "device memory: always pipelined: staged in pieces, packing and copying overlap"},
    {"TEMPI_DATATYPE_AUTO", FLAG, &tempi_config.automatic,
     "device memory: choose the method for each message (default)"},
    {"TEMPI_LAUNCH_AT_ONCE", FLAG, &tempi_config.launch_at_once,
     "device memory: launch the kernel of a nonblocking send at once if its stream is idle; by default a burst of "
     "nonblocking sends is one launch, at the first call of another kind"},
    {"TEMPI_CONTIGUOUS_STAGED", FLAG, &tempi_config.contiguous_staged,
     "contiguous device memory: copy it to the host and send that, also on a CUDA-aware library"},
    {"TEMPI_CONTIGUOUS_AUTO", FLAG, &tempi_config.contiguous_automatic,
     "contiguous device memory: choose by the calibrated model, else leave it to a CUDA-aware library (default)"},
    {"TEMPI_NO_ALLTOALLV", ELSEWHERE, NULL,
     "accepted for compatibility, no effect: Alltoallv goes to the library"},
    {"TEMPI_PLACEMENT_METIS", ELSEWHERE, NULL,
     "accepted for compatibility, no effect: tempi places no ranks"},
    {"TEMPI_PLACEMENT_KAHIP", ELSEWHERE, NULL,
     "accepted for compatibility, no effect: tempi places no ranks"},
    {"TEMPI_PLACEMENT_RANDOM", ELSEWHERE, NULL,
     "accepted for compatibility, no effect: tempi places no ranks"},
};
enum { NVARIABLES = sizeof variables / sizeof variables[0] };

/* Set at all counts as on, as in the paper's code, but for "0" and the empty string. */
static bool flag_of(const char *text)
{
    return text[0] != '\0' && strcmp(text, "0") != 0;
}

static bool bytes_of(const char *text, int64_t *out)
{
    char *end;
    const long long number = strtoll(text, &end, 10);
    int shift = 0;
    switch (*end) {
    case 'G':
    case 'g': shift = 30; break;
    case 'M':
    case 'm': shift = 20; break;
    case 'K':
    case 'k': shift = 10; break;
    default: break;
    }
    if (end == text || number < 0 || end[shift ? 1 : 0] != '\0' || number > (INT64_MAX >> shift))
        return false;
    *out = (int64_t)number << shift;
    return true;
}

static const char *const log_levels[] = {"error", "warning", "info", "debug", NULL};
static const char *const distances[] = {"auto", "near", "far", NULL};

static bool word_of(const char *text, const char *const *words, int *out)
{
    for (int i = 0; words[i]; ++i) {
        if (strcmp(text, words[i]) == 0) {
            *out = i;
            return true;
        }
    }
    return false;
}

static bool parse(const variable *v, const char *text)
{
    switch (v->kind) {
    case FLAG: *(bool *)v->target = flag_of(text); return true;
    case TEXT: *(const char **)v->target = text[0] ? text : NULL; return true;
    case BYTES:
    case NUMBER: return bytes_of(text, v->target);
    case LOG_LEVEL: return word_of(text, log_levels, v->target);
    case DISTANCE: return word_of(text, distances, v->target);
    case ELSEWHERE: return true;
    }
    return false;
}

static int64_t default_stage_max(void)
{
    const int64_t bound = (int64_t)256 << 20;
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page = sysconf(_SC_PAGESIZE);
    if (pages <= 0 || page <= 0)
        return bound;
    const int64_t share = (int64_t)pages / 20 * page;
    return share < bound ? share : bound;
}

static void warn_unknown(void)
{
    for (char **e = environ; e && *e; ++e) {
        const char *equals = strchr(*e, '=');
        if (strncmp(*e, "TEMPI_", 6) != 0 || !equals)
            continue;
        const size_t length = (size_t)(equals - *e);
        bool known = false;
        for (int i = 0; i < NVARIABLES && !known; ++i)
            known = strlen(variables[i].name) == length &&
                    memcmp(variables[i].name, *e, length) == 0;
        if (!known)
            TEMPI_LOG(TEMPI_LOG_WARN,
                      "unknown environment variable %.*s: `tempi doctor` lists the known ones",
                      (int)length, *e);
    }
}

static void load(void)
{
    tempi_config.stage_max = default_stage_max();
    tempi_config.device_max = -1;
    tempi_config.cuda_aware = -1;
    tempi_config.autotune = true;
    for (int i = 0; i < NVARIABLES; ++i) {
        const char *text = getenv(variables[i].name);
        if (text && !parse(&variables[i], text))
            TEMPI_LOG(TEMPI_LOG_WARN, "%s=%s is not understood and is ignored: %s",
                      variables[i].name, text, variables[i].help);
    }
    warn_unknown();
}

void tempi_config_load(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
}

int tempi_config_count(void)
{
    return NVARIABLES;
}

const char *tempi_config_name(int i)
{
    return i >= 0 && i < NVARIABLES ? variables[i].name : NULL;
}

const char *tempi_config_help(int i)
{
    return i >= 0 && i < NVARIABLES ? variables[i].help : NULL;
}

const char *tempi_config_value(int i)
{
    return i >= 0 && i < NVARIABLES ? getenv(variables[i].name) : NULL;
}
