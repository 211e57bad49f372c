/* emulator.h: shared by the parts of the emulated CUDA driver.
 *
 * One lock covers all state. An exported function takes it in tempi_emu_enter and releases it in
 * tempi_emu_leave; stream work runs without it. Device addresses are reserved without access; only
 * the emulator can access the same memory, at a fixed distance (space.c). */
#ifndef TEMPI_EMULATOR_EMULATOR_H
#define TEMPI_EMULATOR_EMULATOR_H

#include "emulator/driver/api.h"
#include "emulator/driver/functions.h"
#include "emulator/ptx/ptx.h"

#include <stdbool.h>
#include <stdio.h>

#define TEMPI_EMU_API __attribute__((visibility("default")))

enum {
    EMU_DEVICES = 16,
    EMU_CONTEXTS = 80, /* the devices' primary ones first, by ordinal */
    EMU_MS = 1000000   /* nanoseconds */
};

typedef enum { EMU_IMMEDIATE, EMU_DEFERRED, EMU_RANDOM } tempi_emu_mode;

/* From the environment, read once by cuInit. */
typedef struct {
    int devices;
    int capability; /* 90: compute capability 9.0 */
    int driver;     /* 12040: CUDA 12.4 */
    tempi_emu_mode mode;
    uint64_t memory; /* bytes of each device */
    uint64_t seed;
    bool rehearsal; /* devices do not say that they are emulated */
    bool late_pageable;
    bool pageable_access; /* devices access pageable memory */
    const char *modules;
    const char *report;
} tempi_emu_options;

extern tempi_emu_options tempi_emu_option;
/* Delay after which work runs that no call waits for; tests write it. */
extern TEMPI_EMU_API uint64_t tempi_emulator_delay_ns;

typedef struct tempi_emu_stream tempi_emu_stream;
typedef struct tempi_emu_op tempi_emu_op;
typedef struct tempi_emu_capture tempi_emu_capture;
typedef struct tempi_emu_context tempi_emu_context;

struct tempi_emu_context {
    int device;
    bool active;
    bool green;    /* shares the memory of its device's primary context */
    unsigned life; /* a handle is reused: how often it was destroyed */
    unsigned retained;
    unsigned flags;
    bool peers[EMU_CONTEXTS]; /* contexts whose memory it may access */
    CUresult sticky;
    tempi_emu_stream *legacy;
};

extern tempi_emu_context tempi_emu_contexts[EMU_CONTEXTS];
extern uint64_t tempi_emu_used[EMU_DEVICES]; /* bytes of each device */

/* ---- state.c: entry and exit of every call --------------------------------------------------- */
typedef enum { EMU_ALWAYS, EMU_INIT, EMU_CONTEXT } tempi_emu_need;

/* Counts the call, fails it if injected, and takes the lock unless it failed. *context: the current
 * context, if `need` requires one. */
CUresult tempi_emu_enter(tempi_emu_function function, tempi_emu_need need,
                         tempi_emu_context **context);
CUresult tempi_emu_leave(CUresult result);
void tempi_emu_lock(void);
void tempi_emu_unlock(void);
void tempi_emu_wait(uint64_t nanoseconds); /* waits for a state change, at most that long */
void tempi_emu_changed(void);
uint64_t tempi_emu_now(void);
bool tempi_emu_stopped(void); /* the driver is shut down, or the device is lost */
void tempi_emu_start(void);
extern _Thread_local bool tempi_emu_in_callback;

/* ---- options.c ------------------------------------------------------------------------------- */
void tempi_emu_options_read(void);
void tempi_emu_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint64_t tempi_emu_random(void); /* under the lock */

/* ---- inject.c, call_counts.c ----------------------------------------------------------------- */
CUresult tempi_emu_inject(tempi_emu_function function, uint64_t call, bool *lost);
void tempi_emu_inject_read(void);
const char *tempi_emu_function_name(tempi_emu_function function);
void *tempi_emu_function_find(const char *name);
void tempi_emu_report(void);
extern _Atomic uint64_t tempi_emu_calls[TEMPI_EMU_FUNCTIONS];
extern _Atomic uint64_t tempi_emu_launches;

/* ---- space.c: device addresses and the memory behind them ------------------------------------ */
enum { EMU_PAGE = 4096 };
bool tempi_emu_space_init(void);
uint64_t tempi_emu_space_take(uint64_t size, uint64_t align, uint64_t hint); /* 0: no space */
void tempi_emu_space_give(uint64_t address);
bool tempi_emu_space_holds(uint64_t address);
/* Maps bytes of the file to device addresses. */
bool tempi_emu_space_map(uint64_t address, uint64_t size, uint64_t offset);
/* The same of another process's file. */
bool tempi_emu_space_map_from(uint64_t address, uint64_t size, int from, uint64_t offset);
int tempi_emu_space_file(void);
void tempi_emu_space_unmap(uint64_t address, uint64_t size);
void tempi_emu_space_forget(uint64_t offset, uint64_t size); /* frees the pages */
uint8_t *tempi_emu_space_bytes(uint64_t address);
uint64_t tempi_emu_space_offset(uint64_t address); /* in the file of this process */

/* ---- range.c: memory that the driver knows --------------------------------------------------- */
typedef enum {
    EMU_DEVICE,
    EMU_POOL,
    EMU_MAPPED,    /* by cuMemMap */
    EMU_OPENED,    /* another process's, by cuIpcOpenMemHandle */
    EMU_VARIABLES, /* of a module */
    EMU_MANAGED,
    EMU_HOST,
    EMU_REGISTERED,
} tempi_emu_kind;

typedef struct tempi_emu_range {
    uint64_t base;
    uint64_t size;  /* as asked for */
    uint8_t *bytes; /* the emulator's own mapping */
    uint64_t id;    /* never reused */
    uint64_t block; /* the allocation behind it */
    int device;
    tempi_emu_context *context; /* the context that frees it; NULL: none */
    tempi_emu_kind kind;
    unsigned readable; /* bit k: device k may access it without peer access */
    CUmemoryPool pool;
} tempi_emu_range;

tempi_emu_range *tempi_emu_range_find(uint64_t address);
tempi_emu_range *tempi_emu_range_add(const tempi_emu_range *range); /* NULL: out of memory */
void tempi_emu_range_remove(uint64_t base);
size_t tempi_emu_range_count(void);
tempi_emu_range *tempi_emu_range_at(size_t index);
uint64_t tempi_emu_id(void);
bool tempi_emu_range_on_device(const tempi_emu_range *range);
/* Whether kernels of that context may access it. */
bool tempi_emu_range_open_to(const tempi_emu_range *range, const tempi_emu_context *context);

/* Whether it is pageable memory that the devices access. */
bool tempi_emu_pageable_access(uint64_t address);

/* ---- cu_memory.c ----------------------------------------------------------------------------- */
CUresult tempi_emu_allocate(tempi_emu_context *context, int device, size_t size,
                            tempi_emu_kind kind, tempi_emu_range **range);
void tempi_emu_release(tempi_emu_range *range);
void tempi_emu_release_context(const tempi_emu_context *context);

/* ---- cu_context.c ---------------------------------------------------------------------------- */
tempi_emu_context *tempi_emu_current(void);
bool tempi_emu_context_valid(const tempi_emu_context *context);
bool tempi_emu_context_primary(const tempi_emu_context *context);
CUresult tempi_emu_drive_device(int device); /* all of its contexts */

/* ---- queue.c: streams as queues of work ------------------------------------------------------ */
typedef struct {
    tempi_emu_stream *stream;
    uint64_t number;
} tempi_emu_point; /* position in a stream: after that many operations */

struct tempi_emu_op {
    tempi_emu_op *next;
    tempi_emu_stream *stream;
    uint64_t number;
    uint64_t due;
    tempi_emu_point *after;
    size_t afters;
    bool callback; /* runs on the driver's own thread only */
    CUresult (*run)(tempi_emu_op *op);
    void (*drop)(tempi_emu_op *op);
    _Alignas(16) char payload[];
};

struct tempi_emu_stream {
    uint32_t magic;
    tempi_emu_stream *next;
    tempi_emu_context *context;
    unsigned flags;
    const void *thread; /* the thread whose default stream it is; NULL: none */
    unsigned references;
    bool destroyed;
    bool running;
    uint64_t id;
    uint64_t submitted;
    uint64_t completed;
    uint64_t wanted; /* operations up to here were queried */
    unsigned asked;  /* queries since the last progress */
    tempi_emu_op *head;
    tempi_emu_op *tail;
    int priority;
    tempi_emu_capture *capture; /* the graph that its work becomes part of; NULL: it runs */
};

tempi_emu_stream *tempi_emu_stream_new(tempi_emu_context *context, unsigned flags);
void tempi_emu_stream_hold(tempi_emu_stream *stream);
void tempi_emu_stream_drop(tempi_emu_stream *stream);
tempi_emu_stream *tempi_emu_streams(void);
/* The stream of a handle, including the special handles of default streams. */
CUresult tempi_emu_stream_of(tempi_emu_context *context, CUstream handle,
                             tempi_emu_stream **stream);
tempi_emu_op *tempi_emu_op_new(tempi_emu_stream *stream, size_t payload,
                               CUresult (*run)(tempi_emu_op *op));
void tempi_emu_op_free(tempi_emu_op *op);
bool tempi_emu_op_after(tempi_emu_op *op, tempi_emu_point point);
CUresult tempi_emu_submit(tempi_emu_op *op);
CUresult tempi_emu_drive(tempi_emu_point point); /* runs work until the point is reached */
CUresult tempi_emu_drive_context(tempi_emu_context *context); /* all of its streams */
bool tempi_emu_reached(tempi_emu_point point);
void tempi_emu_ask(tempi_emu_point point);
void tempi_emu_worker_start(void);

/* ---- cu_capture.c ---------------------------------------------------------------------------- */
/* Takes the operation into the graph of its stream; false: the stream captures none. */
bool tempi_emu_captured(tempi_emu_op *op);
/* Drops the captures in a context that ends. */
void tempi_emu_captures_end(const tempi_emu_context *context);
/* Refuses a call that is unsafe while work is captured, and ends the capture. */
CUresult tempi_emu_capture_check(tempi_emu_function function);
/* Any use of the legacy default stream of that context. */
CUresult tempi_emu_legacy_use(const tempi_emu_context *context);
/* A stream or event whose work is captured cannot be queried or waited for. */
CUresult tempi_emu_capture_spoil(tempi_emu_stream *stream);
/* A captured event is waited for in that stream, which joins the capture; or a capturing stream is
 * to wait for work that is not captured. */
CUresult tempi_emu_capture_wait(tempi_emu_stream *stream, tempi_emu_capture *of);

/* ---- cu_event.c ------------------------------------------------------------------------------ */
typedef struct tempi_emu_event tempi_emu_event;
size_t tempi_emu_event_count(void);
size_t tempi_emu_stream_count(void);
size_t tempi_emu_module_count(void);
/* Frees the events, streams and modules of a context whose work is done. */
void tempi_emu_events_end(const tempi_emu_context *context);
void tempi_emu_streams_end(const tempi_emu_context *context);
void tempi_emu_modules_end(const tempi_emu_context *context);

/* ---- copy_work.c ----------------------------------------------------------------------------- */
typedef struct {
    uint8_t *dst;
    const uint8_t *src;
    size_t width, height, depth; /* bytes, rows, planes */
    size_t dst_pitch, dst_slice, src_pitch, src_slice;
    uint8_t *staged; /* a copy of a pageable source */
} tempi_emu_box;

typedef struct {
    tempi_emu_range *range; /* NULL: pageable host memory */
    uint8_t *bytes;
} tempi_emu_place;

CUresult tempi_emu_place_of(uint64_t address, size_t extent, tempi_emu_place *place);

/* ---- grid.c ---------------------------------------------------------------------------------- */
typedef struct {
    const tempi_ptx_kernel *kernel;
    tempi_emu_context *context;
    uint64_t variables;
    uint64_t seed;
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t dynamic_shared;
    uint8_t *param;
} tempi_emu_launch;

CUresult tempi_emu_grid_run(const tempi_emu_launch *launch);

#endif
