/* cuda/device.h: one CUDA device as tempi uses it: a context of the program, tempi's streams and
 * events, and the kernels.
 *
 * Memory, streams, events and modules belong to a context; kernels of another context cannot reach
 * the memory, even on the same device. Nearly all programs use the devices' primary contexts; each
 * context that a program creates itself (cuCtxCreate) is a further device here. A device is
 * identified by its slot: the ordinal for a primary context, higher numbers for the others
 * (context_slot.h).
 *
 * Locking: `lock` guards the lists in here and in the batches (backend.c). No driver call that can
 * wait for the device is made under it, except on the first use of a device, which loads what it
 * needs. */
#ifndef TEMPI_CUDA_DEVICE_H
#define TEMPI_CUDA_DEVICE_H

#include "cuda/driver.h"
#include "cuda/kernels.h"

#include <pthread.h>

enum {
    TEMPI_CUDA_ORDINALS = 32, /* devices */
    TEMPI_CUDA_DEVICES = 64   /* context slots */
};

typedef struct tempi_cuda_batch tempi_cuda_batch;

/* Words in pinned memory that streams write when they get there; `lock` guards the list. */
enum { TEMPI_CUDA_FLAGS = 1024 };
typedef struct tempi_cuda_flags {
    uint32_t *words; /* NULL: not allocated */
    tempi_cuda_address
        counters; /* for each one of the blocks of a kernel that writes it; 0: none */
    bool failed;  /* to allocate them */
    bool off;     /* the driver cannot write them; kernels can */
    bool registered;
    int free[TEMPI_CUDA_FLAGS];
    int nfree;
} tempi_cuda_flags;

/* Lengths of bursts of operations, which programs repeat; `lock` guards them. */
typedef struct tempi_cuda_burst {
    int now;      /* operations since the last burst ended */
    int last;     /* operations of that */
    int expected; /* of this one: as of the last two; 0: they were not equal */
} tempi_cuda_burst;

/* A descriptor block on the device (resident.h); `lock` guards it. */
enum { TEMPI_CUDA_RESIDENTS = 16 };
/* Streams that wait to be joined; more are joined at once. */
enum { TEMPI_CUDA_JOINS = 8 };
#define TEMPI_CUDA_SEVERAL UINTPTR_MAX
enum { TEMPI_ROWS_UNKNOWN = -1 };
typedef struct tempi_resident {
    void *bytes; /* a copy on the host */
    size_t n;    /* 0: none */
    uint64_t address;
    tempi_cuda_stream stream; /* in which it was uploaded */
    bool there;               /* the upload is done */
    int users;                /* batches */
    uint64_t used;            /* when last */
    struct tempi_op_list *of; /* operations whose plan is that block and these launches; or NULL */
    tempi_launch *launches;
    int nlaunches;
} tempi_resident;

typedef struct tempi_cuda_device {
    int slot;
    int ordinal;
    int handle; /* CUdevice */
    int multiprocessors;
    int64_t cache;  /* bytes of the second level */
    int capability; /* 10 * major + minor */
    int64_t memory; /* bytes of device memory */
    int64_t max_pitch;
    tempi_cuda_context context;     /* the primary one, retained; or one of the program */
    tempi_cuda_address witness;     /* 8 bytes in the context; 0: none */
    uint64_t witness_id;            /* its buffer id, from the driver */
    _Atomic bool gone;              /* the program has destroyed or reset its context */
    struct tempi_cuda_device *next; /* in the list of removed devices */
    /* By direction: TEMPI_PACK, TEMPI_UNPACK. The driver orders work in default_streams after
     * earlier work in the legacy default stream, and no other stream's (stream_order.c). */
    tempi_cuda_stream streams[2], default_streams[2];
    tempi_cuda_stream copy_streams[2]; /* copies that overlap with them */
    /* The program's stream that all of tempi's have waited for; 0: none; TEMPI_CUDA_SEVERAL. */
    _Atomic uintptr_t joined;
    uintptr_t joins[TEMPI_CUDA_JOINS]; /* streams that they are still to wait for; `lock` */
    int nlisted;
    _Atomic int njoins;      /* those listed, and those that a thread is joining now */
    pthread_mutex_t joining; /* held by that thread */
    _Atomic int join_status; /* of a join before a launch: the next launch fails by it */
    tempi_cuda_flags flags;  /* completion.c */
    tempi_resident residents[2][TEMPI_CUDA_RESIDENTS]; /* by direction */
    uint64_t resident_uses;
    _Atomic int64_t copied_rows; /* row_copies.h */
    bool same_addresses;         /* registered host memory has the host's addresses on the device */
    pthread_mutex_t lock;
    tempi_cuda_event *events; /* idle events */
    int nevents, events_room;
    tempi_cuda_module module;
    tempi_cuda_function *functions; /* by tempi_kernel_id */
    unsigned *resident_blocks;      /* of each: as many run at a time; 0: unknown */
    int kernels_status;             /* result of loading them; TEMPI_OK before that */
    bool kernels_tried;
    tempi_cuda_burst bursts[2]; /* by direction */
    tempi_cuda_batch *open[2];  /* by direction: the batch that gathers operations */
    tempi_cuda_batch *last[2];  /* launched last, not known to be done */
} tempi_cuda_device;

/* The device in that slot; a primary context is set up on first use. NULL: it or CUDA is
 * unusable. */
tempi_cuda_device *tempi_cuda_device_get(int slot);
/* The device in that slot if it is set up, else NULL. */
tempi_cuda_device *tempi_cuda_device_peek(int slot);

/* Adds a device for a context of the program; NULL: the context is unusable. The caller makes sure
 * that no other thread does the same. */
tempi_cuda_device *tempi_cuda_device_add(int slot, int ordinal, tempi_cuda_context context);
/* Frees the slot; the device struct lives until tempi_cuda_devices_stop, for threads that still use
 * it. */
void tempi_cuda_device_remove(tempi_cuda_device *device);
/* Whether the context is still the one that was set up; asks the driver if it may have changed. */
bool tempi_cuda_device_alive(tempi_cuda_device *device);
/* How often all devices were taken down: knowledge about slots is valid within one such epoch. */
extern _Atomic unsigned tempi_cuda_times;

/* Makes the device's context current, unless it is; tempi_cuda_leave restores the program's. While
 * some thread captures a graph, calls that may wait for the device, allocate or load are refused
 * and end the capture (CUDA driver API, cuThreadExchangeStreamCaptureMode); enter by
 * tempi_cuda_enter_relaxed for them. Copies, launches and events in tempi's own streams need no
 * relaxing. */
typedef struct tempi_cuda_entry {
    bool pushed;
    bool captured; /* the thread's stream capture mode was relaxed */
    int mode;
} tempi_cuda_entry;
int tempi_cuda_enter(tempi_cuda_device *device, tempi_cuda_entry *entry);
int tempi_cuda_enter_relaxed(tempi_cuda_device *device, tempi_cuda_entry *entry);
void tempi_cuda_leave(tempi_cuda_entry *entry);

/* An event without timing, from the pool. The caller has entered the device. */
int tempi_cuda_event_get(tempi_cuda_device *device, tempi_cuda_event *out);
void tempi_cuda_event_put(tempi_cuda_device *device, tempi_cuda_event event);

/* A stream of tempi's for work of that direction that comes after the work so far in the program's
 * stream: the one that this thread named, or else `theirs`, or, if that is 0, that of
 * TEMPI_STREAM_ORDER. The caller has entered the device. */
int tempi_cuda_stream_after(tempi_cuda_device *device, int direction, uintptr_t theirs,
                            tempi_cuda_stream *out);
/* Makes `stream`, of another device, wait for this device's default stream, if the thread has named
 * none and TEMPI_STREAM_ORDER says so. The caller has entered this device. */
int tempi_cuda_order_default(tempi_cuda_device *device, tempi_cuda_stream stream);
/* Whether the number stands for the order of TEMPI_STREAM_ORDER or for the legacy default stream,
 * rather than for a stream to wait for; *out: tempi's stream for that. */
bool tempi_cuda_is_default(tempi_cuda_device *device, int direction, uintptr_t theirs,
                           tempi_cuda_stream *out);
/* Whether work in the stream would become part of a graph. */
bool tempi_cuda_is_captured(tempi_cuda_stream stream);
/* The same for the host: returns when the program's stream of that device is idle (of all devices,
 * for managed memory without a device). */
int tempi_cuda_await_program(int slot, int direction);
/* Sets the stream in which the calling thread's buffers become ready: a CUstream of the program,
 * with cuda.h's numbers for the default ones (1 legacy, 2 per thread); 0: back to the default rule.
 */
void tempi_cuda_set_stream(uintptr_t stream);
uintptr_t tempi_cuda_get_stream(void);
/* The same for one direction, TEMPI_PACK or TEMPI_UNPACK; `slot`: context slot of the buffer's
 * device. */
void tempi_cuda_set_direction_stream(int direction, int slot, uintptr_t stream);
/* The stream that this thread named for the direction; 0: none. */
uintptr_t tempi_cuda_named_stream(int direction);
/* Makes `then` wait for the work in `first`, on the device if possible, else by blocking here.
 * Enqueues nothing if `first` is idle or captured: what is in a captured one cannot be waited for.
 */
int tempi_cuda_order_streams(tempi_cuda_device *device, tempi_cuda_stream first,
                             tempi_cuda_stream then);
/* Makes all of tempi's streams wait for the work in a stream of the program: at the next launch or
 * the next MPI call that is no MPI_Isend or MPI_Irecv, whichever is first, so that the stream is
 * waited for once for a burst. */
int tempi_cuda_join(tempi_cuda_device *device, uintptr_t stream);
/* Does so now for the streams that are waiting for it. The caller has entered the device. */
int tempi_cuda_join_waiting(tempi_cuda_device *device);
/* Forgets them: their context is gone. */
void tempi_cuda_join_forget(tempi_cuda_device *device);
/* Whether this thread named a stream for the direction by tempi_cuda_join as well. */
bool tempi_cuda_named_is_joined(int direction);
void tempi_cuda_set_joined(int direction);
/* Blocks until a stream of the program is idle. */
int tempi_cuda_wait_stream(int slot, uintptr_t stream);
/* The same for the stream set for the direction, if any: before code other than tempi's uses the
 * buffer. */
int tempi_cuda_settle(int direction);

/* The kernel's function, its module loaded on first use. The caller has entered the device. */
int tempi_cuda_function_get(tempi_cuda_device *device, int kernel, tempi_cuda_function *out);
/* Whether the device has kernels, loading them if needed: TEMPI_ERR_UNSUPPORTED if not. */
int tempi_cuda_kernels_ready(tempi_cuda_device *device);
/* The image of this build that a device of that capability (10 * major + minor) runs: "sm_90",
 * "ptx", or NULL for none. */
const char *tempi_cuda_kernels_target(int capability);

/* At MPI_Finalize: returns all resources to the driver, if it still exists. */
void tempi_cuda_devices_stop(void);

#endif
