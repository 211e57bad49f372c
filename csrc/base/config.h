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
    int method; /* TEMPI_METHOD_* for device memory; TEMPI_METHODS: chosen for each message */
    bool contiguous_staged,
        contiguous_automatic; /* TEMPI_CONTIGUOUS_*: the same where it has no gaps */
    bool launch_at_once; /* kernels start when their stream is idle, not when the program has posted
                            all */
    int64_t test_delay;  /* packs finish only at the n-th test: exercises deferred sends */
    const char
        *model; /* "0": the built-in rule; else the file of tables to use; NULL: this machine's */
    bool model_update; /* the times of real work correct the tables */
    bool autotune; /* what is faster is measured on the program's own calls where no table tells */
    int locality;  /* TEMPI_LOCALITY_*: of the ranks of this node */
    const char *trace; /* file name of the Chrome trace, or NULL */
} tempi_settings;

enum { TEMPI_LOCALITY_AUTO, TEMPI_LOCALITY_SAME_LLC, TEMPI_LOCALITY_OTHER_LLC };

extern tempi_settings tempi_config;

/* Reads the environment; warns on unknown TEMPI_* names and on values that do not parse.
 * Idempotent. */
void tempi_config_load(void);

/* The text of a setting that has former names, from its own or one of theirs; NULL: none is set.
 * *given_by: the variable that it is from. Warns where two that are set differ. */
const char *tempi_config_find(const char *name, const char **given_by);

#endif
