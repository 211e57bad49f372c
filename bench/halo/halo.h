/* halo.h: a 3-D halo exchange with MPI subarray types, as applications write it.
 *
 * Axes are in C order: axis 0 is the slowest (z), axis 2 the contiguous one (x). A rank owns
 * points[0] x points[1] x points[2] cells of each field, with `radius` cells of halo on every side,
 * and exchanges them with its up to 26 neighbours (faces, edges, corners). */
#ifndef TEMPI_BENCH_HALO_H
#define TEMPI_BENCH_HALO_H
#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { AXES = 3, DIRECTIONS = 27, CENTRE = 13 };

/* The timed phases of one exchange. With types: Irecv calls; Isend calls; Waitall. Persistent: the
 * two Startall; Waitall. A collective call is all PHASE_WAIT. By hand: Irecv calls; pack and Isend;
 * Waitall of the receives, unpack, Waitall of the sends. */
enum phase { PHASE_POST, PHASE_SEND, PHASE_WAIT, PHASE_EXCHANGE, PHASES };
extern const char *const phase_names[PHASES];

enum subject { SUBJECT_LIBRARY, SUBJECT_TEMPI, SUBJECT_HAND, SUBJECTS };

/* The memory of the fields. `start` may be NULL; it returns the reason if there is no such memory
 * here. The copies are NULL if the CPU accesses the memory directly. */
struct memory_kind {
    const char *name;
    const char *(*start)(MPI_Comm comm);
    void *(*allocate)(size_t bytes); /* NULL: out of memory */
    void (*release)(void *data);
    void *(*staging)(size_t bytes); /* host buffers of the hand-written exchange */
    void (*staging_release)(void *data);
    void (*copy)(void *to, const void *from, size_t bytes); /* to or from host memory */
};
const struct memory_kind *memory_kind_find(const char *name);

/* How the exchange with types is written. */
struct halo;
struct exchange_kind {
    const char *name;
    void (*setup)(struct halo *h);
    void (*run)(struct halo *h, enum subject subject, double seconds[PHASES]);
    void (*free)(struct halo *h);
};
const struct exchange_kind *exchange_kind_find(const char *name);

struct options {
    int grid[AXES]; /* 0: chosen by MPI_Dims_create */
    int points[AXES];
    int radius;
    int fields;
    int periodic;
    int combine; /* one message per neighbour for all fields, instead of one for each field */
    int check_only;
    /* Cell of rank 0 to corrupt before the check, to see the check fail; -1: none. */
    long long corrupt;
    double seconds;    /* budget for the timing, all subjects together */
    const char *label; /* name of the library subject in the records */
    const char *json;  /* NULL: a text table; "-": stdout */
    const struct memory_kind *memory;
    const struct exchange_kind *exchange;
};
/* 0, or 1 with one line on stderr (from rank 0 only) when an option is wrong; -1 for --help. */
int options_parse(struct options *out, int argc, char **argv, int rank);

struct region {
    int start[AXES];
    int size[AXES];
};

struct message {
    int peer;
    int send_tag;
    int receive_tag;
    int field; /* first field in the message */
    int fields;
    size_t bytes;
    struct region inner; /* owned cells that the peer needs */
    struct region outer; /* halo cells that the peer fills */
    MPI_Datatype send_type;
    MPI_Datatype receive_type;
    void *send_staging; /* packed data of the hand-written exchange */
    void *receive_staging;
};

struct halo {
    struct options options;
    MPI_Comm comm;
    int rank;
    int ranks;
    int grid[AXES];
    int coords[AXES];
    int dims[AXES]; /* points + 2 * radius */
    size_t cells;   /* of one field, halo included */
    double *data;   /* fields one after another */
    double *host;   /* where the CPU fills and verifies them: `data`, or a copy */
    int messages;
    struct message *message;
    MPI_Request *requests;             /* receives, then sends */
    MPI_Request *persistent[SUBJECTS]; /* the same; NULL before a subject's first exchange */
    struct edges *edges;               /* of the neighbourhood collective */
};
void halo_setup(struct halo *h, const struct options *options);
void halo_free(struct halo *h);

/* One exchange; seconds[] by phase, of this rank. With types: options.exchange->run. */
void exchange_by_hand(struct halo *h, double seconds[PHASES]);
void set_phases(double seconds[PHASES], double t0, double t1, double t2, double t3);

/* Pack and unpack by hand. In device memory both only start the copies: region_wait waits for
 * them. */
void region_pack(const struct halo *h, const struct region *region, int field, int fields,
                 void *out);
void region_unpack(struct halo *h, const struct region *region, int field, int fields,
                   const void *in);
void region_wait(const struct halo *h);

/* Interior from global coordinates, field and generation; halo poisoned. */
void verify_fill(struct halo *h, int generation);
/* Corrupts one cell of this rank, to see the check fail. */
void verify_spoil(struct halo *h, long long cell);
/* Number of wrong cells over all ranks; the first of them is reported on stderr. */
long long verify_check(const struct halo *h, int generation, const char *subject);

/* tempi in this process, if it was preloaded. */
int engine_found(void);          /* 1: interposed and acting */
const char *engine_reason(void); /* why it does not act */
void engine_disable(void);
void engine_enable(void);
/* The MPI library's own function, bypassing tempi; NULL without tempi. */
void *engine_library_function(const char *name);
/* Whether the MPI library itself is CUDA-aware, as it or TEMPI_CUDA_AWARE says. */
int engine_library_aware(void);
int engine_counters(void);
const char *engine_counter_name(int i);
uint64_t engine_counter(int i);

struct timing {
    enum subject subject;
    const char *name;
    int samples;
    double *seconds[PHASES]; /* maximum over ranks; valid on rank 0 */
    uint64_t *counters;      /* of one exchange, summed over ranks; NULL when not tempi */
    long long wrong;
};
void timing_run(struct halo *h, struct timing *timings, int n);
void timing_free(struct timing *timing);

int report_write(const struct halo *h, const struct timing *timings, int n);
double report_median(const double *values, int n);

/* Ends all ranks; reports to the launching process (_TEMPI_BENCH_ERRORS), otherwise on stderr. */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *checked_alloc(size_t bytes);
double now(void);
#endif
