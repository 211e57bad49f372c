/* The table of environment variables: read once, when the engine starts. The same table feeds the
 * documentation, `tempi doctor` and the warning on unknown TEMPI_* names. */
#ifndef TEMPI_BASE_CONFIG_H
#define TEMPI_BASE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tempi_settings {
    bool disable;           /* leave the MPI library alone */
    bool no_pack;           /* MPI_Pack and MPI_Unpack stay with the library */
    bool no_type_commit;    /* look at no datatype: nothing is accelerated */
    bool force;             /* act on everything that can be, whatever the rule says */
    bool check;             /* repeat every pack and unpack by a plain walk of the type map */
    bool stats;             /* print the counters at MPI_Finalize */
    const char *stats_file; /* file that gets them as JSON, or NULL */
    int64_t stage_max;      /* bytes of staging memory a process may hold */
    int64_t
        device_max; /* bytes of device buffers a process may hold on one device; -1: by its size */
    const char *cuda_driver; /* "emulated": the test device; "none": no CUDA; NULL: the program's */
    int64_t cuda_aware;      /* the MPI library takes device addresses: 0, 1, or -1: ask it */
    bool oneshot, device, staged, pipelined,
        automatic; /* TEMPI_DATATYPE_*: the method for device memory */
    bool contiguous_staged,
        contiguous_automatic; /* TEMPI_CONTIGUOUS_*: the same where it has no gaps */
    bool launch_at_once; /* kernels start when their stream is idle, not when the program has posted
                            all */
    int64_t test_delay;  /* packs finish only at the n-th test: exercises deferred sends */
    const char
        *model; /* "0": the built-in rule; else the file of tables to use; NULL: this machine's */
    bool model_update; /* the times of real work correct the tables */
    bool autotune; /* what is faster is measured on the program's own calls where no table tells */
    int distance;  /* TEMPI_DISTANCE_*: how far the ranks of this node are */
    const char *trace; /* file name of the Chrome trace, or NULL */
} tempi_settings;

enum { TEMPI_DISTANCE_AUTO, TEMPI_DISTANCE_NEAR, TEMPI_DISTANCE_FAR };

extern tempi_settings tempi_config;

/* Reads the environment; warns on unknown TEMPI_* names and on values that do not parse.
 * Idempotent. */
void tempi_config_load(void);

#endif
