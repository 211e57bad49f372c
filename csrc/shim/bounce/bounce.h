/* Device memory in calls to a library that is not CUDA-aware. The call gets host memory in
 * place of the buffer (transfer/bounce_buffer.h): the program's bytes are copied in before
 * the call and copied back when the operation completes. Point-to-point messages are packed
 * instead (message.h). The functions that use bounces are generated from the table (bounced.c).
 *
 *   a call            copied back when it returns
 *   with a request    copied back when the request completes: its record owns the bounce
 *                     (one-sided: or when the window is synchronised, whichever is first)
 *   persistent        filled at each start, copied back at each completion
 *   one-sided         copied back when the window's operations to that target are complete
 *                     (pending until then)
 *   split collective  copied back at its second half (pending until then) */
#ifndef TEMPI_SHIM_BOUNCE_H
#define TEMPI_SHIM_BOUNCE_H

#include "memory/kind.h"
#include "shim/abi.h"
#include "shim/comm/cuda_aware.h"
#include "shim/large_count.h"

#include <limits.h>

/* ---- whether a call may need a bounce -------------------------------------------------------- */

/* CUDA is in this process and the calling thread lets tempi act. */
bool tempi_bounce_possible(void);

static inline bool tempi_bounces(void)
{
    return __builtin_expect(tempi_memory_mixed, 0) && !tempi_library_cuda_aware() &&
           tempi_bounce_possible();
}

/* ---- one call -------------------------------------------------------------------------------- */

/* The MPI object at whose error handler an error is raised. */
typedef struct tempi_owner {
    enum { TEMPI_OWNED_BY_COMM, TEMPI_OWNED_BY_FILE, TEMPI_OWNED_BY_WIN } kind;
    MPI_Comm comm;
    MPI_File file;
    MPI_Win win;
} tempi_owner;

#define TEMPI_OWNER_COMM(c) ((tempi_owner){.kind = TEMPI_OWNED_BY_COMM, .comm = (c)})
#define TEMPI_OWNER_FILE(f) ((tempi_owner){.kind = TEMPI_OWNED_BY_FILE, .file = (f)})
#define TEMPI_OWNER_WIN(w)  ((tempi_owner){.kind = TEMPI_OWNED_BY_WIN, .win = (w)})

/* An array of counts or displacements: int, or 64-bit if `wide`. */
typedef struct tempi_numbers {
    const void *of;
    bool wide;
} tempi_numbers;

static inline int64_t tempi_number_at(tempi_numbers numbers, int64_t i)
{
    return numbers.wide ? ((const int64_t *)numbers.of)[i] : ((const int *)numbers.of)[i];
}

#define TEMPI_NUMBERS(array) {(array), sizeof *(array) == sizeof(int64_t)}

/* Use of a buffer by the call; 0: the buffer is ignored. */
enum {
    TEMPI_READS = 1,
    TEMPI_WRITES = 2,
    TEMPI_KEEPS = 4 /* may write only a part; the rest must stay unchanged */
};

enum { TEMPI_ONCE = -1 }; /* `times`: a single count that is not repeated */

/* One buffer argument of a call. */
typedef struct tempi_bounce_argument {
    const void *address;
    int does;
    MPI_Count count;
    tempi_numbers counts; /* if not NULL, in place of `count` */
    tempi_numbers displacements;
    bool in_bytes; /* unit of the displacements; else extents */
    bool own;      /* only this process's entry of counts, else (without displacements) their sum */
    MPI_Datatype type;
    const MPI_Datatype *types; /* if not NULL, one type for each entry */
    int times;   /* array entries or repetitions of the count: TEMPI_LARGE_COUNT_*, TEMPI_ONCE */
    void *given; /* out: the address for the library */
} tempi_bounce_argument;

typedef struct tempi_bounce tempi_bounce;

typedef enum tempi_bounce_when {
    TEMPI_BOUNCE_NOW,  /* filled at once */
    TEMPI_BOUNCE_LATER /* filled at each start */
} tempi_bounce_when;

/* Sets `given` of each buffer; *out is NULL if no buffer needs a bounce. Returns an MPI error
 * that was already raised, or MPI_SUCCESS. */
int tempi_bounce_open(tempi_owner owner, tempi_bounce_argument *buffers, int n,
                      tempi_bounce_when when, tempi_bounce **out);

/* Whether this process is the root, or one of the other processes, of a rooted collective. */
bool tempi_bounce_at_root(MPI_Comm comm, int root);
bool tempi_bounce_at_leaf(MPI_Comm comm, int root);
/* How a broadcast uses its buffer in this process (TEMPI_READS or TEMPI_WRITES). */
int tempi_bounce_broadcasts(MPI_Comm comm, int root);

/* After the library's call, which returned rc. Each function takes over the bounce, does nothing
 * if it is NULL, and returns the error code for the program. */
int tempi_bounce_close(tempi_bounce *bounce, int rc);
int tempi_bounce_attach(tempi_bounce *bounce, int rc, MPI_Request *request);
int tempi_bounce_attach_target(tempi_bounce *bounce, int rc, int target, MPI_Request *request);
int tempi_bounce_attach_persistent(tempi_bounce *bounce, int rc, MPI_Request *request);
int tempi_bounce_pend(tempi_bounce *bounce, int rc, int target);
int tempi_bounce_begin(tempi_bounce *bounce, int rc);

/* As tempi_bounce_attach_persistent, for a buffer whose equal partitions are copied one by one. */
int tempi_bounce_attach_partitions(tempi_bounce *bounce, int rc, int partitions,
                                   MPI_Request *request);
/* Partitions [first, last] are ready to be sent. Does nothing unless the request has a bounce.
 * Returns MPI_SUCCESS or an error that was already raised. Callable from any thread. */
int tempi_bounce_ready(MPI_Request request, int first, int last);
/* The same for a partition that has arrived: it is copied back, for the program to read. */
int tempi_bounce_arrived(MPI_Request request, int partition);

/* ---- bounces of requests --------------------------------------------------------------------- */

struct tempi_record;
/* At a start. Returns MPI_SUCCESS or an error that was already raised. */
int tempi_bounce_fill(tempi_bounce *bounce);
void tempi_bounce_free(tempi_bounce *bounce);

/* ---- pending bounces ------------------------------------------------------------------------- */

extern int64_t tempi_bounces_pending;

static inline bool tempi_bounce_is_pending(void)
{
    return __atomic_load_n(&tempi_bounces_pending, __ATOMIC_RELAXED) != 0;
}

enum { TEMPI_ALL_TARGETS = INT_MIN };

/* Before the window is synchronised: takes the bounces of operations to that target, in order. */
tempi_bounce *tempi_bounce_claim(MPI_Win win, int target);
/* After the synchronisation: copies them back. */
int tempi_bounce_synchronised(tempi_bounce *claimed, int rc);
/* After MPI_Win_free: frees them and copies nothing back. */
int tempi_bounce_forget(tempi_bounce *claimed, int rc);
/* Takes the bounce of the file's split collective, or NULL; then the buffer for its second half. */
tempi_bounce *tempi_bounce_resume(MPI_File file);
void *tempi_bounce_given(const tempi_bounce *bounce, const void *buffer);
int tempi_bounce_end(tempi_bounce *bounce, int rc);
/* After MPI_File_close. */
void tempi_bounce_closed(MPI_File file);
/* At the end of MPI: frees all pending bounces. */
void tempi_bounce_clear(void);

/* ---- unsupported calls ----------------------------------------------------------------------- */

/* Whether memory for the library's own use, or for access by other processes, is on a device. */
bool tempi_bounce_refuses(const void *base, MPI_Count size);
/* Raises and returns the error. `call`: the name of the MPI function. */
int tempi_bounce_refuse(tempi_owner owner, const char *call);

#endif
