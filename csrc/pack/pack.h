/* pack.h: packing as submitted work, for the rest of the engine.
 *
 * A caller hands over a list of operations and gets a ticket; when the ticket is done, all of them
 * are. The host back end finishes inside submit. A back end that runs elsewhere returns at once,
 * and the caller must not touch the packed bytes, nor let the layouts go, before the ticket is
 * done.
 */
#ifndef TEMPI_PACK_PACK_H
#define TEMPI_PACK_PACK_H
#include "tempi.h"

#include <stdbool.h>

/* Bytes of a piece of a pipelined message: long enough to use the bus well and short enough to
 * overlap; to be measured. */
enum { TEMPI_PIECE = 1 << 20 };

struct tempi_parts;

/* Bytes [first, first + n) of the packed stream of `count` elements at mem, to (TEMPI_PACK) or from
 * (TEMPI_UNPACK) `packed`, which holds just those n bytes. */
typedef struct tempi_op {
    const tempi_layout *layout;
    int64_t count;
    void *mem;
    void *packed;
    int64_t first;
    int64_t n;
    int32_t direction;
    int32_t method;
    int32_t device;   /* ordinal; of no meaning on the host */
    bool partial;     /* the layout covers only some of the packed bytes: the others are not to be
                         touched */
    uintptr_t stream; /* the program's, after which a device does it (cuda/device.h:
                         tempi_cuda_order); 0: by default */
    struct tempi_parts
        *parts; /* TEMPI_METHOD_MIXED: one operation for each memory (parts.h); else NULL */
    /* Of a pack by a device: straight into where this unpack would bring the bytes, whose memory is
     * the same device's; neither's `packed` is touched. It stays as it is until the work is
     * launched. NULL: into `packed`. */
    const struct tempi_op *into;
} tempi_op;

typedef struct tempi_work tempi_work;

/* One kind of memory's way of packing. test and wait are told the work that submit handed out. */
typedef struct tempi_backend {
    const char *name;
    /* Writes *out = NULL when the work is done already. */
    int (*submit)(const tempi_op *ops, int n, tempi_work **out);
    /* 1 when done, with *status how it went; the work is then gone. Never blocks. */
    int (*test)(tempi_work *work, int *status);
    /* Returns how it went when done; the work is then gone. */
    int (*wait)(tempi_work *work);
} tempi_backend;

/* Work in flight, or done: work == NULL. Belongs to one thread at a time. All zero is a done one.
 */
typedef struct tempi_ticket {
    const tempi_backend *backend;
    tempi_work *work;
    int status; /* once it is done */
} tempi_ticket;

/* Starts the operations. On failure none was started and *out is left alone. */
int tempi_pack_submit(const tempi_op *ops, int n, tempi_ticket *out);
/* 1 when all of the ticket's operations are done, and from then on; else 0, at once. */
int tempi_pack_test(tempi_ticket *ticket);
void tempi_pack_wait(tempi_ticket *ticket);
/* How a ticket that is done went: TEMPI_OK, or TEMPI_ERR_DEVICE when a device failed under way; the
 * bytes are then undefined. Work on the host cannot fail. */
int tempi_pack_error(const tempi_ticket *ticket);
/* Submits and waits. Work on the host cannot fail: it needs nothing that could be missing. */
int tempi_pack_run(const tempi_op *ops, int n);

/* Who does the operations that are not for the host; without one they are TEMPI_ERR_UNSUPPORTED. */
void tempi_pack_set_device_backend(const tempi_backend *backend);

/* For tests: with tests > 0, work submitted from now on is done at its tests-th test or at wait, as
 * if it ran on a device. 0: at once again. */
void tempi_pack_set_delay(int64_t tests);

/* For tests: the host kernels of that level from now on; NULL: the best. TEMPI_ERR_UNSUPPORTED
 * where the processor has no such level. */
int tempi_kernels_use(const char *name);
/* For tests: every loop with candidates (kernel_trials.h) takes this one, modulo their number; -1:
 * measures anew. No other thread may be packing. */
void tempi_tune_pretend(int candidate);
/* For tests: seconds that a call of each candidate takes, instead of what the clock says; NULL: the
 * clock. */
void tempi_tune_weigh(const double *seconds);
/* For tests: takes the last-level cache to have so many bytes; 0: asks the machine again. */
void tempi_cache_assume(int64_t bytes);

#endif
