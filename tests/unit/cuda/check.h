/* check.h: shared by the programs that test csrc/cuda on the fake driver. */
#ifndef TEMPI_CUDA_CHECK_H
#define TEMPI_CUDA_CHECK_H
#include "fake.h"
#include "tempi.h"
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

/* The fake driver, brought in by dlopen as a program's run-time would. */
extern fake_control *driver;
void driver_load(const char *path);
/* ... and everything set up on the way to the first message. */
void driver_begin(const char *path);

/* Layouts: a vector of `count` runs of `run` bytes at `stride`; a random list of runs; dense bytes.
 */
const tempi_layout *layout_vector(int64_t count, int64_t run, int64_t stride);
const tempi_layout *layout_list(int64_t count, int64_t run);
const tempi_layout *layout_dense(int64_t bytes);

/* Bytes of the counter i, so that every position has a value of its own. */
void pattern(void *to, int64_t n, int seed);
/* What packing `count` elements at mem must give; malloc'd. */
char *packed_bytes(const tempi_layout *layout, int64_t count, const void *mem);
int64_t stat_value(const char *name);
#endif
