/* Chooses how a long flow is copied: through the ring, with ordinary or with non-temporal stores;
 * in one copy, by reading the sender's memory; or packed in memory of the sender's own, which the
 * receiver reads. Which one is fastest depends on the processor, on the caches that two cores
 * share, and on the kernel's cost of each run; so the sender times them on the program's own calls,
 * for each receiver, length of runs and size, and a slower one again every 64th flow. */
#ifndef TEMPI_EXCHANGE_COPY_CHOICE_H
#define TEMPI_EXCHANGE_COPY_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum tempi_copy_way {
    TEMPI_COPY_TWICE,       /* through the ring */
    TEMPI_COPY_NONTEMPORAL, /* the same with non-temporal stores (block_bytes.h) */
    TEMPI_COPY_PACKED,      /* the receiver reads packed bytes */
    TEMPI_COPY_ONCE,        /* the receiver reads blocks; not for short runs */
    TEMPI_COPY_WAYS
} tempi_copy_way;

enum {
    TEMPI_COPY_TRIALS = 3, /* of each way at first; the first one of each warms caches and pages */
    TEMPI_COPY_CLASSES = 10, /* the first two: short runs */
    /* The kernel takes as long for a shorter run as to copy it twice. */
    TEMPI_COPY_RUN_LEAST = 512
};

/* Zero at first. Of one sender for one receiver. */
typedef struct tempi_copy_choice {
    struct {
        double cost[TEMPI_COPY_WAYS]; /* seconds per byte, of both processes */
        uint32_t samples[TEMPI_COPY_WAYS];
        uint32_t flows;
    } classes[TEMPI_COPY_CLASSES];
    /* The last long flow, of which the receiver has yet to tell its time. */
    uint64_t call; /* 0: none */
    int64_t bytes;
    double seconds; /* of the sender */
    int class;
    tempi_copy_way way;
} tempi_copy_choice;

/* The class of a flow of `bytes`, of which `offered` are in `runs` long runs; -1: it is too short.
 */
int tempi_copy_class(int64_t bytes, int64_t offered, int64_t runs);
/* Sets `way` for a flow of that class, of so many bytes in all. */
void tempi_copy_begin(tempi_copy_choice *choice, int class, uint64_t call, int64_t bytes);
/* The receiver took so many seconds for that flow. */
void tempi_copy_measured(tempi_copy_choice *choice, double seconds);

/* Takes a sample into a known cost; `samples` counts it. */
void tempi_copy_sample(double *known, uint32_t samples, double cost);

/* Seconds. */
double tempi_copy_clock(void);

#endif
