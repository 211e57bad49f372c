/* cuda/kernels.h: compiled GPU kernels as the engine sees them.
 *
 * The kernels are written in Python (tempi/kernels/) and compiled when tempi is built. The engine
 * embeds one image of machine code per target, each with all kernels, and the PTX, for cards newer
 * than this build. kernels_names.h and kernels_table.c are generated from one table
 * (tempi/kernels/_table.py). An engine built without kernels has the names but no image: nothing
 * can be loaded, and planning still works.
 *
 * A kernel's parameters are 64-bit and 32-bit scalars, never structures, so that a launch is an
 * array of pointers to integers. Its shared memory is static: `shared` is for the emulator and for
 * later. */
#ifndef TEMPI_CUDA_KERNELS_H
#define TEMPI_CUDA_KERNELS_H
#include "kernels_names.h" /* generated: enum tempi_kernel_id, TEMPI_KERNEL_COUNT */
#include <stddef.h>
#include <stdint.h>

typedef struct tempi_kernel_image {
    const char *target; /* "sm_80": a cubin for that architecture; "ptx": zero-terminated text */
    const void *data;
    size_t size; /* bytes, the terminating zero included */
} tempi_kernel_image;

/* Machine code in ascending order of targets, then the PTX. */
extern const tempi_kernel_image tempi_kernel_images[];
extern const int tempi_kernel_image_count;

/* The C names of the kernels in every image, by tempi_kernel_id. */
extern const char *const tempi_kernel_names[];

/* Behind its own parameters every kernel has two more (tempi/kernels/_done.py). */
enum { TEMPI_LAUNCH_PARAMS = 24, TEMPI_LAUNCH_DONE_PARAMS = 2 };

/* When a whole grid is faster, whose blocks do their share at once and start one after another,
 * than one whose blocks all run at a time and go round in steps of the grid
 * (tempi_launch_is_whole). */
typedef enum tempi_whole {
    TEMPI_WHOLE_NEVER, /* or there is no such form */
    TEMPI_WHOLE_ALWAYS,
    TEMPI_WHOLE_LARGE,          /* from half of the cache on */
    TEMPI_WHOLE_SHORT_OR_LARGE, /* there, and up to two rounds of a word a thread */
    TEMPI_WHOLE_LONG            /* from three rounds on */
} tempi_whole;

/* One kernel launch. params[i] holds a 32-bit parameter in its low half: &params[i] is the pointer
 * that cuLaunchKernel takes on every (little-endian) machine that has CUDA. */
typedef struct tempi_launch {
    int kernel; /* enum tempi_kernel_id */
    unsigned grid;
    unsigned whole; /* blocks of the whole grid */
    tempi_whole when;
    uint64_t words, bytes; /* that it moves */
    unsigned block;
    unsigned shared; /* bytes of dynamic shared memory */
    int nparams;
    uint64_t params[TEMPI_LAUNCH_PARAMS];
} tempi_launch;

#endif
