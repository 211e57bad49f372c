/* Device memory in the functions of a library that takes no device addresses: the call is made with
 * host memory in the buffer's place (transfer/bounce_buffer.h), into which the program's bytes are
 * copied before it and from which they come back when the operation is complete. Point-to-point
 * messages are not carried so: those are packed (message.h). The functions that use it are
 * generated from the table (bounced.c).
 *
 *   a call            comes back when it returns
 *   with a request    when that completes: the bounce hangs on the request's record
 *                     (one-sided: or when the window is synchronised, whichever is first)
 *   persistent        filled at each start, comes back at each completion
 *   one-sided         when the window's operations to that target are complete (lingers until then)
 *   split collective  at its second half (lingers until then)
 */
#ifndef TEMPI_SHIM_BOUNCE_H
#define TEMPI_SHIM_BOUNCE_H

#include "memory/kind.h"
#include "shim/abi.h"
#include "shim/comm/cuda_aware.h"
#include "shim/large_count.h"

#include <limits.h>

/* ---- is there anything to do? ---------------------------------------------------------------- */

/* CUDA is in this process and the calling thread lets tempi act. */
bool tempi_bounce_possible(void);

static inline bool tempi_bounces(void)
{
    return __builtin_expect(tempi_memory_mixed, 0) && !tempi_library_cuda_aware() &&
           tempi_bounce_possible();
}

/* ---- one call -------------------------------------------------------------------------------- */

/* Whose error handler hears of a failure. */
typedef struct tempi_owner {
    enum { TEMPI_OWNED_BY_COMM, TEMPI_OWNED_BY_FILE, TEMPI_OWNED_BY_WIN } kind;
    MPI_Comm comm;
    MPI_File file;
    MPI_Win win;
} tempi_owner;

#define TEMPI_OWNER_COMM(c) ((tempi_owner){.kind = TEMPI_OWNED_BY_COMM, .comm = (c)})
#define TEMPI_OWNER_FILE(f) ((tempi_owner){.kind = TEMPI_OWNED_BY_FILE, .file = (f)})
#define TEMPI_OWNER_WIN(w)  ((tempi_owner){.kind = TEMPI_OWNED_BY_WIN, .win = (w)})

/* An array of counts or displacements, in the width of the function's form. */
typedef struct tempi_numbers {
    const void *of;
    bool wide;
} tempi_numbers;

#define TEMPI_NUMBERS(array) {(array), sizeof *(array) == sizeof(int64_t)}

/* What the call does with a buffer; nothing: it is not looked at. */
enum {
    TEMPI_READS = 1,
    TEMPI_WRITES = 2,
    TEMPI_KEEPS = 4 /* not all of it may be written; the rest stays as it was */
};

enum { TEMPI_ONCE = -1 }; /* `times`: a single count, which is not repeated */

/* One buffer argument, as the call describes it. */
typedef struct tempi_bounce_argument {
    const void *address;
    int does;
    MPI_Count count;
    tempi_numbers counts; /* or these */
    tempi_numbers displacements;
    bool in_bytes; /* the displacements; else in extents */
    bool own; /* only this process's own entry of counts; without displacements it is else their sum
               */
    MPI_Datatype type;
    const MPI_Datatype *types; /* or these, one an entry */
    int times;   /* entries of the arrays, or repetitions of the count: TEMPI_LARGE_COUNT_* or
                    TEMPI_ONCE */
    void *given; /* out: what to hand to the library */
} tempi_bounce_argument;

typedef struct tempi_bounce tempi_bounce;

typedef enum tempi_bounce_when {
    TEMPI_BOUNCE_NOW,  /* filled at once */
    TEMPI_BOUNCE_LATER /* filled at each start */
} tempi_bounce_when;

/* Sets each buffer's `given`; *out is NULL where none of them needs more than that. An MPI error
 * was raised already. */
int tempi_bounce_open(tempi_owner owner, tempi_bounce_argument *buffers, int n,
                      tempi_bounce_when when, tempi_bounce **out);

/* Whether this process reads, or writes, in a rooted collective: the root does, or the others do.
 */
bool tempi_bounce_at_root(MPI_Comm comm, int root);
bool tempi_bounce_at_leaf(MPI_Comm comm, int root);
/* Of a broadcast's one buffer. */
int tempi_bounce_broadcasts(MPI_Comm comm, int root);

/* What becomes of it after the library's call, which returned rc. Each takes the bounce over, does
 * nothing without one, and returns what the program is to be told. */
int tempi_bounce_close(tempi_bounce *bounce, int rc);
int tempi_bounce_attach(tempi_bounce *bounce, int rc, MPI_Request *request);
int tempi_bounce_attach_target(tempi_bounce *bounce, int rc, int target, MPI_Request *request);
int tempi_bounce_keep(tempi_bounce *bounce, int rc, MPI_Request *request);
int tempi_bounce_pend(tempi_bounce *bounce, int rc, int target);
int tempi_bounce_begin(tempi_bounce *bounce, int rc);

/* The same as keep, for a buffer whose equal partitions come and go one by one. */
int tempi_bounce_keep_partitions(tempi_bounce *bounce, int rc, int partitions,
                                 MPI_Request *request);
/* Partitions [first, last] are ready to be sent, if the request is a bounced one: MPI_SUCCESS, or
 * an error that was raised already. Any thread. */
int tempi_bounce_ready(MPI_Request request, int first, int last);
/* That one has arrived: the same, and the program may read it then. */
int tempi_bounce_arrived(MPI_Request request, int partition);

/* ---- what hangs on a request's record -------------------------------------------------------- */

struct tempi_record;
/* At a start: MPI_SUCCESS, or an error that was raised already. */
int tempi_bounce_fill(tempi_bounce *bounce);
void tempi_bounce_free(tempi_bounce *bounce);

/* ---- what lingers ---------------------------------------------------------------------------- */

extern int64_t tempi_bounce_lingering;

static inline bool tempi_bounce_is_pending(void)
{
    return __atomic_load_n(&tempi_bounce_lingering, __ATOMIC_RELAXED) != 0;
}

enum { TEMPI_ALL_TARGETS = INT_MIN };

/* Before the window is synchronised: the bounces of operations to that target, in order. */
tempi_bounce *tempi_bounce_claim(MPI_Win win, int target);
/* After it. */
int tempi_bounce_synchronised(tempi_bounce *claimed, int rc);
/* After MPI_Win_free: nothing comes back. */
int tempi_bounce_forget(tempi_bounce *claimed, int rc);
/* The bounce of the file's split collective, if it has one; the second half's buffer. */
tempi_bounce *tempi_bounce_resume(MPI_File file);
void *tempi_bounce_given(const tempi_bounce *bounce, const void *buffer);
int tempi_bounce_end(tempi_bounce *bounce, int rc);
/* After MPI_File_close. */
void tempi_bounce_closed(MPI_File file);
/* At the end of MPI: what still lingers. */
void tempi_bounce_clear(void);

/* ---- what cannot be -------------------------------------------------------------------------- */

/* Memory that the library, or other processes, are to use by themselves lies on a device. */
bool tempi_bounce_refuses(const void *base, MPI_Count size);
/* Raises and returns the error. `call`: the function's name. */
int tempi_bounce_refuse(tempi_owner owner, const char *call);

#endif
