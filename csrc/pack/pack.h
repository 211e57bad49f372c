/* pack.h: packing as submitted work, for the rest of the engine.
 *
 * A caller passes a list of operations and gets a ticket; when the ticket is done, all operations
 * are done. The host back end finishes inside submit. An asynchronous back end returns at once;
 * until the ticket is done the caller must not touch the packed bytes or release the layouts. */
#ifndef TEMPI_PACK_PACK_H
#define TEMPI_PACK_PACK_H
#include "tempi.h"

#include <stdbool.h>

/* Bytes of a piece of a pipelined message: long enough to use the bus well and short enough to
 * overlap; to be measured. */
enum { TEMPI_PIECE = 1 << 20 };

struct tempi_parts;

/* Bytes [first, first + n) of the packed stream of `count` elements at mem, to (TEMPI_PACK) or from
 * (TEMPI_UNPACK) `packed`, which holds exactly these n bytes. */
typedef struct tempi_op {
    const tempi_layout *layout;
    int64_t count;
    void *mem;
    void *packed;
    int64_t first;
    int64_t n;
    int32_t direction;
    int32_t method;
    int32_t device; /* ordinal; unused on the host */
    /* The layout covers only some of the packed bytes: the others must not be touched. */
    bool partial;
    /* Host memory: the peer's core shares no cache with this one, so that the packed bytes are
     * stored non-temporally, or are received in memory that is never sent (transfer/staging.h). */
    bool streamed;
    /* `packed` is memory of the host that no device reaches. */
    bool pageable;
    /* The program's stream, after which a device does it (cuda/device.h: tempi_cuda_stream_after);
     * 0: the default. */
    uintptr_t stream;
    /* TEMPI_METHOD_MIXED: one operation per memory (parts.h); else NULL. */
    struct tempi_parts *parts;
    /* For a pack by a device: the unpack whose memory receives the bytes directly. Its memory is
     * the same device's; neither operation's `packed` is touched. It must not change until the work
     * is launched. NULL: pack into `packed`. */
    const struct tempi_op *into;
} tempi_op;

typedef struct tempi_work tempi_work;

/* The packing functions for one kind of memory. test and wait get the work that submit returned. */
typedef struct tempi_backend {
    const char *name;
    /* Writes *out = NULL if the work is already done. */
    int (*submit)(const tempi_op *ops, int n, tempi_work **out);
    /* Returns 1 when done, with the result in *status and the work freed. Never blocks. */
    int (*test)(tempi_work *work, int *status);
    /* Blocks until done; returns the status and frees the work. */
    int (*wait)(tempi_work *work);
} tempi_backend;

/* Work in flight, or done: work == NULL. Belongs to one thread at a time. All zero means done. */
typedef struct tempi_ticket {
    const tempi_backend *backend;
    tempi_work *work;
    int status; /* valid once done */
} tempi_ticket;

/* Starts the operations. On failure none is started and *out is unchanged. */
int tempi_pack_submit(const tempi_op *ops, int n, tempi_ticket *out);
/* Returns 1 when all operations of the ticket are done, and from then on; else 0. Never blocks. */
int tempi_pack_test(tempi_ticket *ticket);
void tempi_pack_wait(tempi_ticket *ticket);
/* The status of a done ticket: TEMPI_OK, or TEMPI_ERR_DEVICE if a device failed under way; the
 * bytes are then undefined. Work on the host cannot fail. */
int tempi_pack_error(const tempi_ticket *ticket);
/* Submits and waits. Work on the host cannot fail: it needs no resource that could be missing. */
int tempi_pack_run(const tempi_op *ops, int n);

/* As tempi_pack and memcpy, but whole lines are stored non-temporally: past the caches, without
 * reading them first. For more than the caches hold, and for memory that another core has read
 * before and reads next: an ordinary store to a line that the other core has in its cache waits
 * until it gave it up (434 instead of 42 us for 1 MiB on Zen 4, between cores without a common
 * cache). */
void tempi_pack_nontemporal(const tempi_layout *layout, int64_t count, const void *base,
                            int64_t first, int64_t n, void *packed);
void tempi_copy_nontemporal(void *to, const void *from, int64_t n);
/* As tempi_unpack, but runs from 64 bytes on are stored non-temporally. */
void tempi_unpack_nontemporal(const tempi_layout *layout, int64_t count, const void *packed,
                              int64_t first, int64_t n, void *base);

/* Whole operations of the host, without packed bytes in between; an operation without a layout is
 * contiguous bytes at `mem`. False: nothing was copied, as they have not equally many bytes, or not
 * the form of one nest of runs each, or packing is faster. */
bool tempi_copy_between(const tempi_op *from, const tempi_op *to, bool nontemporal);

/* Bytes of the last-level cache, or those that a virtual machine may expect of it. */
int64_t tempi_cache_bytes(void);
/* Bytes of the level 2 cache, which is a core's own in most processors. */
int64_t tempi_core_cache_bytes(void);

/* Sets the back end for operations that are not the host's; without one they return
 * TEMPI_ERR_UNSUPPORTED. */
void tempi_pack_set_device_backend(const tempi_backend *backend);

/* For tests: with tests > 0, work submitted from now on is done at its tests-th test or at wait, as
 * if it ran on a device. 0: done at once again. */
void tempi_pack_set_delay(int64_t tests);

/* For tests: uses the host kernels of that ISA from now on; NULL: the best. TEMPI_ERR_UNSUPPORTED
 * if the processor lacks that ISA. */
int tempi_kernels_use(const char *name);
/* For tests: every loop with candidates (kernel_trials.h) takes this one, modulo their number; -1:
 * measures anew. No other thread may be packing. */
void tempi_tune_pretend(int candidate);
/* For tests: seconds per call of each candidate, instead of the clock's; NULL: the clock. */
void tempi_tune_weigh(const double *seconds);
/* For tests: assumes a last-level cache of so many bytes; 0: the machine's size again. */
void tempi_cache_assume(int64_t bytes);
/* For tests: the same of a level 2 cache. */
void tempi_core_cache_assume(int64_t bytes);

#endif
