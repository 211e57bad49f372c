#include "base/config.h"
#include "base/device_methods.h"
#include "base/log.h"
#include "tempi.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HELP_OF_METHOD(none, number, name, how) #name ": " how "; "

extern char **environ;

tempi_settings tempi_config;

typedef enum {
    FLAG,
    BYTES,
    NUMBER,
    TEXT,
    LOG_LEVEL,
    LOCALITY,
    COLLECTIVES,
    ALLOC_MEM,
    STREAM_ORDER,
    METHOD,
    ELSEWHERE
} value_kind;

typedef struct variable {
    const char *name;
    value_kind kind;
    void *target;
    const char *help;
} variable;

/* ELSEWHERE: another part (named in the help) reads it; listed here so that the name is known. */
static const variable variables[] = {
    {"TEMPI_DISABLE", FLAG, &tempi_config.disable, "leave every call to the MPI library"},
    {"TEMPI_NO_PACK", FLAG, &tempi_config.no_pack, "leave MPI_Pack and MPI_Unpack to the library"},
    {"TEMPI_NO_TYPE_COMMIT", FLAG, &tempi_config.no_type_commit,
     "decode no datatype, so that none is accelerated"},
    {"TEMPI_FORCE", FLAG, &tempi_config.force,
     "carry every message that tempi can, even where the library is expected to be faster"},
    {"TEMPI_CHECK", FLAG, &tempi_config.check,
     "check every pack and unpack against a plain walk of the type map and report mismatches"},
    {"TEMPI_STATS", FLAG, &tempi_config.stats,
     "print statistics of all ranks at MPI_Finalize; set it on all ranks or on none"},
    {"TEMPI_STATS_FILE", TEXT, &tempi_config.stats_file,
     "write these statistics to this file at MPI_Finalize, as JSON; set it on all ranks or on none"},
    {"TEMPI_TRACE", TEXT, &tempi_config.trace,
     "write a Chrome trace to this file, with the rank appended"},
    {"TEMPI_COLLECTIVES", COLLECTIVES, &tempi_config.collectives,
     "auto: tempi carries collectives with derived datatypes where all processes concerned run it (default); "
     "library: the library does all of them (default under Open MPI's mpirun --with-ft ulfm)"},
    {"TEMPI_ALLOC_MEM", ALLOC_MEM, &tempi_config.alloc_mem,
     "mapped: MPI_Alloc_mem returns memory that the ranks of the node map, so that collectives copy it once; library: "
     "the library's; auto: mapped, unless the library's would have larger pages (default)"},
    {"TEMPI_STAGE_MAX", BYTES, &tempi_config.stage_max,
     "bound on staging memory of a process, bytes with optional K, M or G (default: the smaller of "
     "256M and 5% of memory); larger messages go to the library"},
    {"TEMPI_LOG", LOG_LEVEL, &tempi_log_level,
     "least severe messages to print on stderr: error, warning (default), info or debug"},
    {"TEMPI_ISA", ELSEWHERE, NULL,
     "instruction set of the host kernels: scalar, sse2, avx2, avx512 or neon (default: the best "
     "of this processor)"},
    {"TEMPI_TEST_DELAY", NUMBER, &tempi_config.test_delay,
     "for tests: a pack completes only after this many tests of its ticket"},
    {"TEMPI_EMULATOR_DEVICES", ELSEWHERE, NULL, "emulated CUDA: number of devices (default 1)"},
    {"TEMPI_EMULATOR_MEMORY", ELSEWHERE, NULL,
     "emulated CUDA: memory of a device, bytes (default 4G)"},
    {"TEMPI_EMULATOR_STREAMS", ELSEWHERE, NULL,
     "emulated CUDA: when work in a stream runs: deferred (default), immediate or random"},
    {"TEMPI_EMULATOR_PAGEABLE", ELSEWHERE, NULL,
     "emulated CUDA: when an asynchronous copy accesses pageable memory: staged, at the call (default), or late, when "
     "it runs"},
    {"TEMPI_EMULATOR_PAGEABLE_ACCESS", ELSEWHERE, NULL,
     "emulated CUDA: 1: devices access pageable memory, as on Grace Hopper (default 0)"},
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
    {"TEMPI_EMULATOR_FAIL", ELSEWHERE, NULL, "emulated CUDA: calls that fail on purpose"},
    {"TEMPI_EMULATOR_REPORT", ELSEWHERE, NULL,
     "emulated CUDA: file for a report of calls and leaks at exit"},
    {"TEMPI_MODEL", TEXT, &tempi_config.model,
     "0: choose by the built-in rule; a file: choose by its tables (default: the tables of "
     "`tempi calibrate` for this machine and MPI)"},
    {"TEMPI_MODEL_UPDATE", FLAG, &tempi_config.model_update,
     "correct the tables during this run by the times of real packs and unpacks; the statistics "
     "show the corrections"},
    {"TEMPI_AUTOTUNE", FLAG, &tempi_config.autotune,
     "0: do not time the program's calls; by default the first calls of each shape are timed to "
     "select the fastest kernel, and tempi or the library for MPI_Pack, MPI_Unpack and messages"},
    {"TEMPI_LOCALITY", LOCALITY, &tempi_config.locality,
     "the tables for messages to other ranks of this node: same-llc (the cores share a last-level "
     "cache), other-llc, or auto: measured while messages are exchanged (default)"},
    {"TEMPI_CACHE_DIR", ELSEWHERE, NULL,
     "folder for calibrations and the programs of `tempi bench` (default: the user's cache folder)"},
    {"TEMPI_LIBRARY", ELSEWHERE, NULL, "path of the libtempi.so that Python loads"},
    {"TEMPI_MPI_PREFIX", ELSEWHERE, NULL, "MPI installations to build for (setup.py)"},
    {"TEMPI_NO_KERNELS", ELSEWHERE, NULL, "1: build without GPU kernels (setup.py)"},
    {"TEMPI_CUDA_DRIVER", TEXT, &tempi_config.cuda_driver,
     "emulated: CUDA on the CPU, a test device; none: leave device memory to the library "
     "(default: the driver that the program has loaded)"},
    {"TEMPI_CUDA_AWARE", NUMBER, &tempi_config.cuda_aware,
     "0 or 1: whether the MPI library is CUDA-aware (default: ask the library)"},
    {"TEMPI_CUDA_IPC", FLAG, &tempi_config.cuda_ipc,
     "0: in collectives no device reads memory of other processes of the node by CUDA IPC (default 1)"},
    {"TEMPI_CUDA_IPC_PATIENCE", NUMBER, &tempi_config.cuda_ipc_patience,
     "microseconds, and as many for each MB, after which a process that waits for nothing else packs what no device "
     "has read yet (default 1000)"},
    {"TEMPI_XPMEM", FLAG, &tempi_config.xpmem,
     "1: in collectives the processes of a node read each other's memory by XPMEM (default 0: tested against a "
     "stand-in only)"},
    {"TEMPI_DEVICE_MAX", BYTES, &tempi_config.device_max,
     "bound on tempi's buffers on one device, bytes with optional K, M or G (default: the smaller of "
     "1G and 5% of its memory)"},
    {"TEMPI_METHOD", METHOD, &tempi_config.method,
     "the method for messages of device memory. " TEMPI_DEVICE_METHODS(
         HELP_OF_METHOD, ) "library: the library sends the device buffer (needs a CUDA-aware "
                           "library); auto: chosen for each message (default)"},
    {"TEMPI_LAUNCH_AT_ONCE", FLAG, &tempi_config.launch_at_once,
     "device memory: launch the kernel of a nonblocking send at once if its stream is idle; by "
     "default one launch serves a burst of nonblocking sends, at the first call of another kind"},
    {"TEMPI_STREAM_ORDER", STREAM_ORDER, &tempi_config.stream_order,
     "device memory: the program's work that a message waits for, if no stream was named for it. "
     "legacy: the work in the legacy default stream (default); none: no work, as the program synchronizes itself"},
    {"TEMPI_ONESHOT_BLOCKS", NUMBER, &tempi_config.oneshot_blocks,
     "device memory: most blocks of a kernel that writes or reads pinned host memory, which the bus bounds; the others "
     "stay free for the program's kernels (default 0: no bound)"},
    {"TEMPI_COPY_ROWS", NUMBER, &tempi_config.copy_rows,
     "device memory: a message by itself of at most so many equal runs at one distance goes to and from pinned host "
     "memory by the driver's pitched copy, not by a kernel (default: measured once for each device)"},
    {"TEMPI_CONTIGUOUS_STAGED", FLAG, &tempi_config.contiguous_staged,
     "contiguous device memory: copy it to the host and send that, also on a CUDA-aware library"},
    {"TEMPI_CONTIGUOUS_AUTO", FLAG, &tempi_config.contiguous_automatic,
     "contiguous device memory: choose by the calibrated model, else leave it to a CUDA-aware library (default)"},
};
enum { NVARIABLES = sizeof variables / sizeof variables[0] };

typedef struct alias {
    const char *old;
    const char *name;
    const char *word; /* a switch's value; NULL: the alias has its own */
    const char *help;
} alias;

#define SWITCH_TO(old, name, word) {old, name, word, "the same as " name "=" word}
#define SWITCH(old, word)          SWITCH_TO(old, "TEMPI_METHOD", word)
#define RENAMED(old, name)         {old, name, NULL, "former name of " name}

/* Former names, and names of the paper's code. If several switches are set, the first in this order
 * counts. */
static const alias aliases[] = {
    SWITCH("TEMPI_DATATYPE_AUTO", "auto"),
    SWITCH("TEMPI_DATATYPE_ONESHOT", "oneshot"),
    SWITCH("TEMPI_DATATYPE_DEVICE", "device"),
    SWITCH("TEMPI_DATATYPE_STAGED", "staged"),
    SWITCH("TEMPI_DATATYPE_PIPELINED", "pipelined"),
    RENAMED("TEMPI_DISTANCE", "TEMPI_LOCALITY"),
    RENAMED("TEMPI_CPU_LEVEL", "TEMPI_ISA"),
    SWITCH_TO("TEMPI_NO_ALLTOALLV", "TEMPI_COLLECTIVES", "library"),
};
enum { NALIASES = sizeof aliases / sizeof aliases[0] };

/* Former spellings of a value. */
static const char *const former_words[][2] = {{"near", "same-llc"}, {"far", "other-llc"}};

/* Variables of the paper's code that would have no effect here: refused. */
static const char *const refused[][2] = {
    {"TEMPI_PLACEMENT_METIS", "tempi does not place ranks"},
    {"TEMPI_PLACEMENT_KAHIP", "tempi does not place ranks"},
    {"TEMPI_PLACEMENT_RANDOM", "tempi does not place ranks"},
};
enum { NREFUSED = sizeof refused / sizeof refused[0] };

/* Any value except "0" and the empty string means on, as in the paper's code. */
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
static const char *const stream_orders[] = {"legacy", "none", NULL};
static const char *const collectives[] = {"auto", "library", NULL};
static const char *const alloc_mems[] = {"auto", "mapped", "library", NULL};
static const char *const localities[] = {"auto", "same-llc", "other-llc", NULL};

/* The host method cannot be set: host kernels do not reach device memory. */
static bool method_of(const char *text, int *out)
{
    const int method = strcmp(text, "auto") == 0 ? TEMPI_METHODS : tempi_method_number(text);
    if (method <= TEMPI_METHOD_HOST)
        return false;
    *out = method;
    return true;
}

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
    case LOCALITY: return word_of(text, localities, v->target);
    case COLLECTIVES: return word_of(text, collectives, v->target);
    case ALLOC_MEM: return word_of(text, alloc_mems, v->target);
    case STREAM_ORDER: return word_of(text, stream_orders, v->target);
    case METHOD: return method_of(text, v->target);
    case ELSEWHERE: return true;
    }
    return false;
}

/* The value that an alias gives to the variable it stands for; NULL: none. */
static const char *said_by(const alias *a)
{
    const char *text = getenv(a->old);
    if (!text || text[0] == '\0')
        return NULL;
    if (a->word)
        return flag_of(text) ? a->word : NULL;
    for (size_t i = 0; i < sizeof former_words / sizeof former_words[0]; ++i)
        if (strcmp(text, former_words[i][0]) == 0)
            return former_words[i][1];
    return text;
}

const char *tempi_config_find(const char *name, const char **given_by)
{
    const char *value = getenv(name);
    *given_by = name;
    if (value && value[0] == '\0')
        value = NULL;
    for (int i = 0; i < NALIASES; ++i) {
        const char *said = strcmp(aliases[i].name, name) == 0 ? said_by(&aliases[i]) : NULL;
        if (!said)
            continue;
        if (!value) {
            value = said;
            *given_by = aliases[i].old;
        } else if (strcmp(value, said) != 0) {
            TEMPI_LOG(TEMPI_LOG_WARN, "%s=%s is ignored: %s=%s is set as well", aliases[i].old,
                      getenv(aliases[i].old), *given_by, getenv(*given_by));
        }
    }
    return value;
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

static bool is_named(const char *name, const char *text, size_t length)
{
    return strlen(name) == length && memcmp(name, text, length) == 0;
}

static void warn_of(const char *text, size_t length)
{
    for (int i = 0; i < tempi_config_count(); ++i)
        if (is_named(tempi_config_name(i), text, length))
            return;
    for (int i = 0; i < NREFUSED; ++i) {
        if (is_named(refused[i][0], text, length)) {
            TEMPI_LOG(TEMPI_LOG_WARN, "%s has no effect: %s", refused[i][0], refused[i][1]);
            return;
        }
    }
    TEMPI_LOG(TEMPI_LOG_WARN,
              "unknown environment variable %.*s: `tempi doctor` lists the known ones", (int)length,
              text);
}

static void warn_unknown(void)
{
    for (char **e = environ; e && *e; ++e) {
        const char *equals = strchr(*e, '=');
        if (strncmp(*e, "TEMPI_", 6) == 0 && equals)
            warn_of(*e, (size_t)(equals - *e));
    }
}

/* Under `mpirun --with-ft ulfm`. The library ends a collective whose peer has died, or whose
 * communicator was revoked; processes that wait in shared memory would not notice. */
static bool tolerates_failures(void)
{
    const char *enabled = getenv("OMPI_MCA_mpi_ft_enable");
    return enabled && !strchr("0fFnN", enabled[0]);
}

static void load(void)
{
    tempi_config.stage_max = default_stage_max();
    tempi_config.device_max = -1;
    tempi_config.cuda_aware = -1;
    tempi_config.copy_rows = -1;
    tempi_config.autotune = tempi_config.cuda_ipc = true;
    tempi_config.cuda_ipc_patience = 1000;
    tempi_config.method = TEMPI_METHODS;
    if (tolerates_failures())
        tempi_config.collectives = TEMPI_COLLECTIVES_LIBRARY;
    for (int i = 0; i < NVARIABLES; ++i) {
        if (variables[i].kind == ELSEWHERE) /* its reader warns of bad values */
            continue;
        const value_kind kind = variables[i].kind;
        const bool has_alias = kind == METHOD || kind == LOCALITY || kind == COLLECTIVES;
        const char *given_by = variables[i].name;
        const char *text = has_alias ? tempi_config_find(variables[i].name, &given_by)
                                     : getenv(given_by);
        if (text && !parse(&variables[i], text))
            TEMPI_LOG(TEMPI_LOG_WARN, "%s=%s is not understood and is ignored: %s", given_by, text,
                      variables[i].help);
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
    return NVARIABLES + NALIASES;
}

const char *tempi_config_name(int i)
{
    if (i < 0 || i >= tempi_config_count())
        return NULL;
    return i < NVARIABLES ? variables[i].name : aliases[i - NVARIABLES].old;
}

const char *tempi_config_help(int i)
{
    if (i < 0 || i >= tempi_config_count())
        return NULL;
    return i < NVARIABLES ? variables[i].help : aliases[i - NVARIABLES].help;
}

const char *tempi_config_value(int i)
{
    const char *name = tempi_config_name(i);
    return name ? getenv(name) : NULL;
}
