/* The table of environment variables, read once when the engine starts. The same table feeds the
 * documentation, `tempi doctor` and the warning on unknown TEMPI_* names. */
#ifndef TEMPI_BASE_CONFIG_H
#define TEMPI_BASE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tempi_settings {
    bool disable;           /* leave every call to the MPI library */
    bool no_pack;           /* leave MPI_Pack and MPI_Unpack to the library */
    bool no_type_commit;    /* decode no datatype: nothing is accelerated */
    bool force;             /* act on every call that tempi can, whatever the rule says */
    bool check;             /* repeat every pack and unpack by a plain traversal of the type map */
    bool stats;             /* print the counters at MPI_Finalize */
    const char *stats_file; /* file for the counters as JSON, or NULL */
    int64_t stage_max;      /* bound on staging memory of a process, bytes */
    /* Bound on tempi's buffers on one device, bytes; -1: derived from the device's memory size. */
    int64_t device_max;
    const char *cuda_driver;   /* "emulated": test device; "none": no CUDA; NULL: the program's */
    bool cuda_ipc;             /* devices read memory of other processes of the node */
    int64_t cuda_ipc_patience; /* microseconds, and as many for each MB, that an offer waits */
    int64_t cuda_aware;        /* whether the MPI library is CUDA-aware: 0, 1, or -1: ask it */
    /* For device memory: TEMPI_METHOD_*; TEMPI_METHODS: chosen for each message. */
    int method;
    /* TEMPI_CONTIGUOUS_*: how contiguous device memory is sent. */
    bool contiguous_staged, contiguous_automatic;
    /* Launch a kernel when its stream is idle, not when the program has posted all its sends. */
    bool launch_at_once;
    int64_t copy_rows;      /* most rows of device memory that the driver copies; -1: measured */
    int64_t oneshot_blocks; /* most blocks of a kernel that accesses pinned memory; 0: no bound */
    int64_t test_delay;     /* packs complete only at the n-th test: exercises deferred sends */
    /* "0": the built-in rule; a file: its tables; NULL: the tables of this machine. */
    const char *model;
    bool model_update; /* correct the tables by the times of real work */
    /* Where no table decides, measure the alternatives on the program's own calls. */
    bool autotune;
    int locality;      /* TEMPI_LOCALITY_*, for all ranks of this node */
    int collectives;   /* TEMPI_COLLECTIVES_* */
    int alloc_mem;     /* TEMPI_ALLOC_MEM_* */
    bool xpmem;        /* processes of a node share their memory by XPMEM */
    int stream_order;  /* TEMPI_STREAM_ORDER_* */
    const char *trace; /* file name of the Chrome trace, or NULL */
} tempi_settings;

enum { TEMPI_LOCALITY_AUTO, TEMPI_LOCALITY_SAME_LLC, TEMPI_LOCALITY_OTHER_LLC };

enum { TEMPI_STREAM_ORDER_LEGACY, TEMPI_STREAM_ORDER_NONE };

enum { TEMPI_COLLECTIVES_AUTO, TEMPI_COLLECTIVES_LIBRARY };

enum { TEMPI_ALLOC_MEM_AUTO, TEMPI_ALLOC_MEM_MAPPED, TEMPI_ALLOC_MEM_LIBRARY };

extern tempi_settings tempi_config;

/* Reads the environment. Warns on unknown TEMPI_* names and on values that do not parse.
 * Idempotent. */
void tempi_config_load(void);

/* The text of a setting that has former names, from the variable itself or a former name; NULL:
 * none is set. *given_by: the name of the variable that is used. Warns where two are set and
 * differ. */
const char *tempi_config_find(const char *name, const char **given_by);

#endif
