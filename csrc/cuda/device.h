/* cuda/device.h: one CUDA device as tempi uses it: a context of the program's, streams of ours,
 * events, and the kernels.
 *
 * Memory, streams, events and modules belong to a context, and kernels of another one do not reach
 * the memory, be it the same device's. Nearly all programs use the devices' primary contexts; one
 * that makes contexts of its own (cuCtxCreate) has as many devices more, here. Each is known by its
 * place: a primary one's is its device's ordinal, the others' are behind them (context_slot.h).
 *
 * Locking: `lock` guards the lists in here and in the batches (backend.c). No driver call that can
 * wait for the device is made under it; the first use of a device, which loads what it needs, is.
 */
#ifndef TEMPI_CUDA_DEVICE_H
#define TEMPI_CUDA_DEVICE_H

#include "cuda/driver.h"

#include <pthread.h>

enum {
    TEMPI_CUDA_ORDINALS = 32, /* devices */
    TEMPI_CUDA_DEVICES = 64   /* places */
};

typedef struct tempi_cuda_batch tempi_cuda_batch;

typedef struct tempi_cuda_device {
    int place;
    int ordinal;
    int handle; /* CUdevice */
    int multiprocessors;
    int capability; /* 10 * major + minor */
    int64_t memory; /* bytes in all */
    int64_t max_pitch;
    tempi_cuda_context context;        /* the primary one, retained; or one of the program's own */
    tempi_cuda_address witness;        /* memory in the latter; 0: none */
    uint64_t witness_id;               /* the driver's of it */
    _Atomic bool gone;                 /* the program has destroyed its context */
    struct tempi_cuda_device *next;    /* among those that are gone */
    tempi_cuda_stream streams[2];      /* by direction: TEMPI_PACK, TEMPI_UNPACK */
    tempi_cuda_stream copy_streams[2]; /* what overlaps with these */
    pthread_mutex_t lock;
    tempi_cuda_event *events; /* idle ones */
    int nevents, events_room;
    tempi_cuda_module module;
    tempi_cuda_function *functions; /* by tempi_kernel_id; loaded when first needed */
    int kernels_status;             /* of loading them; TEMPI_OK while not tried */
    bool kernels_tried;
    tempi_cuda_batch *open[2]; /* by direction: what is gathered for the next launch */
    tempi_cuda_batch *last[2]; /* launched last, and not known to be done */
} tempi_cuda_device;

/* The device at that place, a primary one set up on first use; NULL when it or CUDA is not to be
 * used. */
tempi_cuda_device *tempi_cuda_device_get(int place);
/* Already set up ones only; NULL else. */
tempi_cuda_device *tempi_cuda_device_peek(int place);

/* A place for a context of the program's own, which is not known yet; NULL: it cannot be used. The
 * caller sees to it that no other thread does the same. */
tempi_cuda_device *tempi_cuda_device_add(int place, int ordinal, tempi_cuda_context context);
/* The place is free again; the device stays until all stop, for whom still holds it. */
void tempi_cuda_device_remove(tempi_cuda_device *device);
/* Whether the context is still the one that was set up: asks the driver, where it could be
 * otherwise. */
bool tempi_cuda_device_alive(tempi_cuda_device *device);
/* How often all were taken down: what is known of places holds within one such time. */
extern _Atomic unsigned tempi_cuda_times;

/* Makes the device's context current, unless it is; the program's comes back by leave. */
typedef struct tempi_cuda_entry {
    bool pushed;
    bool captured; /* the thread's stream capture mode was relaxed */
    int mode;
} tempi_cuda_entry;
int tempi_cuda_enter(tempi_cuda_device *device, tempi_cuda_entry *entry);
void tempi_cuda_leave(tempi_cuda_entry *entry);

/* An event without timing, from the pool. The caller has entered the device. */
int tempi_cuda_event_get(tempi_cuda_device *device, tempi_cuda_event *out);
void tempi_cuda_event_put(tempi_cuda_device *device, tempi_cuda_event event);

/* Makes `stream`, one of the device's own, wait for what the program has put into its stream so
 * far: the one that is named for the stream's direction, or else `theirs`, or, if that is 0, the
 * legacy default stream of this device. The caller has entered the device. */
int tempi_cuda_order(tempi_cuda_device *device, tempi_cuda_stream stream, uintptr_t theirs);
/* The same for the host: returns when the program's stream of that device is through (any device's
 * where managed memory has none). */
int tempi_cuda_await_program(int place);
/* The stream that the calling thread's buffers are made ready in: a CUstream of the program, with
 * cuda.h's numbers for the default ones (1 legacy, 2 per thread); 0: back to the default rule. */
void tempi_cuda_set_stream(uintptr_t stream);
uintptr_t tempi_cuda_get_stream(void);
/* The same for one direction, TEMPI_PACK or TEMPI_UNPACK; `place` is the device of the buffer. */
void tempi_cuda_name_stream(int direction, int place, uintptr_t stream);
/* Makes `then` wait for what `first` holds, on the device or, where that cannot be, by waiting
 * here. */
int tempi_cuda_order_streams(tempi_cuda_device *device, tempi_cuda_stream first,
                             tempi_cuda_stream then);
/* Waits here for what a program's stream holds. */
int tempi_cuda_wait_stream(int place, uintptr_t stream);
/* The same for the stream that is named for the direction, if one is: before somebody else than
 * tempi uses the buffer. */
int tempi_cuda_settle(int direction);

/* The kernel's function, its module loaded on first use. The caller has entered the device. */
int tempi_cuda_function_get(tempi_cuda_device *device, int kernel, tempi_cuda_function *out);
/* Whether there are kernels for the device, loading them if need be: TEMPI_ERR_UNSUPPORTED if not.
 */
int tempi_cuda_kernels_ready(tempi_cuda_device *device);
/* Which of this build's kernels a device of that capability (10 * major + minor) runs: "sm_90",
 * "ptx", or NULL for none. */
const char *tempi_cuda_kernels_target(int capability);

/* At MPI_Finalize: everything back to the driver, if it is still there. */
void tempi_cuda_devices_stop(void);

#endif
