/* tempi.h: the public interface of the tempi engine (libtempi.so).
 *
 * It names no MPI type: MPI handles are uintptr_t (the integer or pointer value, zero-extended), so
 * one library serves every MPI ABI. Sizes, offsets, strides and positions are in bytes unless the
 * name says otherwise; times are in seconds. Functions that can fail return a tempi_status and
 * write their outputs only on success. Every function may be called from any thread.
 *
 * The Python package parses this file with cffi unchanged: it skips preprocessor lines, so
 * constants are enums and nothing in here may depend on a macro. */
#ifndef TEMPI_H
#define TEMPI_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef enum tempi_status {
    TEMPI_OK = 0,
    TEMPI_ERR_ARG = 1,         /* an argument is outside its domain */
    TEMPI_ERR_MEMORY = 2,      /* out of memory */
    TEMPI_ERR_UNSUPPORTED = 3, /* a valid request that this build or library cannot serve */
    TEMPI_ERR_NO_MPI = 4,      /* no MPI library is loaded in this process */
    TEMPI_ERR_OVERFLOW = 5,    /* a size or an address does not fit in 63 bits */
    TEMPI_ERR_DEVICE = 6       /* a GPU or its driver failed */
} tempi_status;

const char *tempi_version(void);
const char *tempi_status_string(int status);

/* ---- operations and methods ------------------------------------------------------------------ */

/* The direction of a copy between memory and packed bytes. */
typedef enum tempi_direction {
    TEMPI_PACK = 0,  /* out of memory: MPI_Pack, and the first step of a send */
    TEMPI_UNPACK = 1 /* into memory: MPI_Unpack, and the last step of a receive */
} tempi_direction;

typedef enum tempi_operation {
    TEMPI_OP_PACK = 0,
    TEMPI_OP_UNPACK = 1,
    TEMPI_OP_SEND = 2,
    TEMPI_OP_RECV = 3,
    TEMPI_OPERATIONS = 4
} tempi_operation;

/* How an operation is done. LIBRARY: the call goes to the MPI library unchanged. HOST: memory and
 * packed bytes are host memory. All others: the memory is a device's (or pinned, or managed), and
 * the device's kernels or copies do it. */
typedef enum tempi_method {
    TEMPI_METHOD_HOST = 0,
    TEMPI_METHOD_DEVICE = 1,    /* packed bytes in memory of the same device */
    TEMPI_METHOD_ONE_SHOT = 2,  /* in pinned host memory, which the kernel writes or reads itself */
    TEMPI_METHOD_STAGED = 3,    /* the kernel works in a device buffer, copied in one piece */
    TEMPI_METHOD_PIPELINED = 4, /* the same in pieces, so that kernel and copy overlap */
    TEMPI_METHOD_LIBRARY = 5,
    TEMPI_METHODS = 6,     /* number of the methods above; predictions are indexed by them */
    TEMPI_METHOD_MIXED = 6 /* memory of several kinds: each part has its own method */
} tempi_method;

/* The method's name as in TEMPI_METHOD; NULL: no such number. */
const char *tempi_method_name(int32_t method);
/* The method's number; -1: no such name. */
int32_t tempi_method_number(const char *name);

/* Names of version 0.1, for one release. */
enum { TEMPI_OUTGOING = TEMPI_PACK, TEMPI_INCOMING = TEMPI_UNPACK };
enum { TEMPI_DEVICE_PACK = TEMPI_PACK, TEMPI_DEVICE_UNPACK = TEMPI_UNPACK };
enum {
    TEMPI_MODEL_PACK = TEMPI_OP_PACK,
    TEMPI_MODEL_UNPACK = TEMPI_OP_UNPACK,
    TEMPI_MODEL_SEND = TEMPI_OP_SEND,
    TEMPI_MODEL_RECV = TEMPI_OP_RECV
};

/* ---- layouts: the canonical strided form of a datatype --------------------------------------- */

enum { TEMPI_MAX_DIMS = 12 };

/* One regular dimension of a box: `count` steps of `stride` bytes in memory (any sign) and
 * `packed_stride` bytes in the packed stream (always positive for count > 1). */
typedef struct tempi_dim {
    int64_t count;
    int64_t stride;
    int64_t packed_stride;
} tempi_dim;

/* One entry of an irregular dimension, relative to the box's own offset and packed position. */
typedef struct tempi_entry {
    int64_t offset;
    int64_t packed;
} tempi_entry;

/* An irregular dimension: n entries in ascending packed order. Where the owning box has run == 0,
 * entry i is entries[i+1].packed - entries[i].packed bytes long and entries[n] closes the table. */
typedef struct tempi_table {
    int64_t n;
    tempi_entry *entries;
} tempi_table;

/* The set of byte runs { offset + sum(i_d * dims[d].stride) + table[t].offset
 *                     -> packed + sum(i_d * dims[d].packed_stride) + table[t].packed }
 * over all index tuples 0 <= i_d < dims[d].count and, if there is a table, all its entries t.
 * Every run is `run` bytes, contiguous in memory and in the packed stream.
 * dims are ordered outermost first: by descending packed_stride; the packed spans nest, that is
 * dims[d].packed_stride is at least the packed span of everything inside it. */
typedef struct tempi_box {
    int64_t offset; /* memory offset from the buffer argument (absolute with MPI_BOTTOM) */
    int64_t packed; /* position in the packed stream of one element */
    int64_t run;    /* bytes; 0: variable runs, their lengths are in the table */
    int32_t ndims;
    int32_t space; /* number of the address space of an absolute address; 0: the buffer's own */
    tempi_dim dims[TEMPI_MAX_DIMS];
    /* NULL: no irregular dimension. With run == 0 the table is the innermost dimension. */
    const tempi_table *table;
} tempi_box;

/* One element of a datatype. The union of the boxes covers [0, size) of the packed stream exactly
 * once. Boxes are in ascending order of `packed`. Immutable once made. */
typedef struct tempi_layout {
    int64_t size;    /* packed bytes of one element */
    int64_t lb;      /* lower bound; element i starts at buffer + i * extent */
    int64_t extent;  /* may be zero or negative */
    int64_t true_lb; /* lowest byte touched (0 if size is 0) */
    int64_t true_ub; /* one past the highest byte touched (0 if size is 0) */
    int64_t runs;    /* number of maximal memory runs as the boxes list them */
    int32_t nboxes;
    int32_t dense; /* 1: one run of size bytes and extent == size, so any count is one run */
    const tempi_box *boxes;
    void *cache; /* private to the engine; NULL in a layout not made by the constructors */
} tempi_layout;

enum { TEMPI_ORDER_C = 0, TEMPI_ORDER_FORTRAN = 1 };
enum { TEMPI_DISTRIBUTE_BLOCK = 0, TEMPI_DISTRIBUTE_CYCLIC = 1, TEMPI_DISTRIBUTE_NONE = 2 };
enum { TEMPI_DISTRIBUTE_DFLT_DARG = -1 };

/* Constructors, one per MPI type constructor with byte displacements (MPI-5.0 chapter 5). They
 * compose; they do not simplify. They copy the inner layouts and keep no reference. Free each
 * result with tempi_layout_free. */
int tempi_layout_bytes(int64_t size, tempi_layout **out);
/* The pair types, with their hole: value at 0, index right behind it at its own alignment. */
int tempi_layout_pair(int64_t value_size, int64_t index_offset, int64_t index_size, int64_t extent,
                      tempi_layout **out);
int tempi_layout_contiguous(int64_t count, const tempi_layout *inner, tempi_layout **out);
int tempi_layout_hvector(int64_t count, int64_t blocklength, int64_t stride,
                         const tempi_layout *inner, tempi_layout **out);
int tempi_layout_hindexed(int64_t n, const int64_t *blocklengths, const int64_t *displacements,
                          const tempi_layout *inner, tempi_layout **out);
int tempi_layout_hindexed_block(int64_t n, int64_t blocklength, const int64_t *displacements,
                                const tempi_layout *inner, tempi_layout **out);
int tempi_layout_struct(int64_t n, const int64_t *blocklengths, const int64_t *displacements,
                        const tempi_layout *const *inners, tempi_layout **out);
int tempi_layout_resized(int64_t lb, int64_t extent, const tempi_layout *inner, tempi_layout **out);
int tempi_layout_subarray(int ndims, const int64_t *sizes, const int64_t *subsizes,
                          const int64_t *starts, int order, const tempi_layout *inner,
                          tempi_layout **out);
int tempi_layout_darray(int size, int rank, int ndims, const int64_t *gsizes, const int *distribs,
                        const int64_t *dargs, const int64_t *psizes, int order,
                        const tempi_layout *inner, tempi_layout **out);
void tempi_layout_free(tempi_layout *layout);

/* Called before the first pass (pass = "decode") and after every pass that changed the layout. */
typedef void (*tempi_layout_trace)(void *context, const char *pass, const tempi_layout *state);

/* The canonical form of `raw`: equal bytes in equal order give the same pointer. It is shared and
 * reference-counted: release it as often as it was obtained. `trace` may be NULL. */
int tempi_layout_canonical(const tempi_layout *raw, tempi_layout_trace trace, void *context,
                           const tempi_layout **out);
void tempi_layout_release(const tempi_layout *layout);
/* Number of live canonical layouts in this process. */
int64_t tempi_layout_alive(void);
/* Bytes of memory that the layout itself occupies, including tables. */
int64_t tempi_layout_footprint(const tempi_layout *layout);

/* ---- packing --------------------------------------------------------------------------------- */

/* Copies bytes [first, first + n) of the packed stream of `count` elements at `base`, to or from
 * `packed` (which holds exactly these n bytes). Host memory. The caller must ensure 0 <= first and
 * first + n <= count * layout->size. The ranges must not overlap. */
void tempi_pack(const tempi_layout *layout, int64_t count, const void *base, int64_t first,
                int64_t n, void *packed);
void tempi_unpack(const tempi_layout *layout, int64_t count, const void *packed, int64_t first,
                  int64_t n, void *base);

/* Name of the instruction set of the host kernels ("avx512", "avx2", "sse2", "neon", "scalar"). */
const char *tempi_isa_name(void);

/* Host memory, not zeroed, aligned to a page, that other processes of this user on this node can
 * map. In collectives between them its blocks are copied once (docs/collectives.md). It needs no
 * MPI. Each one takes a file descriptor until it is freed, and no request may use it then.
 * TEMPI_ERR_MEMORY: the system has no memory or descriptor. */
int tempi_mapped_memory_allocate(int64_t bytes, void **out);
/* TEMPI_ERR_ARG: the address is no such memory. */
int tempi_mapped_memory_free(void *memory);

/* ---- device memory --------------------------------------------------------------------------- */

/* A stream is a CUstream, with cuda.h's numbers for the default ones: 1 legacy, 2 the calling
 * thread's. None of these functions needs MPI, and only tempi_gpu_query loads the CUDA driver. */

enum {
    TEMPI_MEMORY_KIND_HOST = 0,
    TEMPI_MEMORY_KIND_PINNED = 1,
    TEMPI_MEMORY_KIND_MANAGED = 2,
    TEMPI_MEMORY_KIND_DEVICE = 3,
    TEMPI_MEMORY_KIND_FOREIGN = 4 /* neither CUDA's nor the host's: tempi cannot access it */
};

/* The kind of memory that an address is in, and its device; -1: no device. */
int tempi_memory_query(const void *address, int32_t *kind, int32_t *device);
/* Registers the CUDA allocation that the address is in: the program promises not to free it before
 * it deregisters it (as often as it registered it), so messages need no query of the driver for it.
 * TEMPI_ERR_ARG: the address is in no such allocation, or was not registered. */
int tempi_memory_register(const void *address);
int tempi_memory_deregister(const void *address);
/* 1 if this process can have device memory; the answer never changes. */
int tempi_gpu_possible(void);

/* Until tempi_stream_end, MPI calls of this thread use the memory at `address` only after the work
 * that is in `stream` now, or up to the next MPI call that is no MPI_Isend or MPI_Irecv. Packs from
 * it (TEMPI_PACK) and unpacks into it (TEMPI_UNPACK, also those that a later call completes) wait
 * for that work on the device; for a call left to the library, the thread waits. The stream must
 * exist until the messages are complete, and the memory's allocation until tempi_stream_end. */
int tempi_stream_begin(const void *address, uintptr_t stream, int direction);
void tempi_stream_end(void);
/* Blocks until the work that is in `stream` now is done; `address` selects the device. */
int tempi_stream_wait(const void *address, uintptr_t stream);
/* Makes later work in `stream` wait for the work that is in `first` now. */
int tempi_stream_join(const void *address, uintptr_t first, uintptr_t stream);

/* As tempi_pack and tempi_unpack, by kernels on the device of `base` (device, managed or pinned
 * memory), in stream order. The layout must be canonical. If `packed` is pageable host memory, the
 * call blocks until the bytes are there; if the device can access `packed`, it returns at once.
 * TEMPI_ERR_ARG: `base` is pageable host memory. TEMPI_ERR_UNSUPPORTED: `packed` is memory of
 * another device, or this build has no kernels for the device. */
int tempi_device_pack(const tempi_layout *layout, int64_t count, const void *base, int64_t first,
                      int64_t n, void *packed, uintptr_t stream);
int tempi_device_unpack(const tempi_layout *layout, int64_t count, const void *packed,
                        int64_t first, int64_t n, void *base, uintptr_t stream);

/* CUDA on this machine; the query loads the driver. */
typedef struct tempi_gpu_info {
    const char *driver; /* "none", "libcuda.so.1", or the emulator's name */
    int32_t emulated;   /* 1: CUDA on the CPU, a test device */
    int32_t version;    /* CUDA version of the driver, 1000 * major + 10 * minor; 0: no driver */
    int32_t devices;
    const char *error; /* the reason why a loaded driver has no devices, or NULL */
} tempi_gpu_info;
int tempi_gpu_query(tempi_gpu_info *out);

typedef struct tempi_gpu_device {
    char name[128];
    int32_t capability; /* 10 * major + minor */
    int32_t multiprocessors;
    int64_t memory; /* bytes */
    /* The kernels of this build for the device: "sm_90" or other machine code, "ptx"; NULL: none.
     */
    const char *kernels;
} tempi_gpu_device;
/* 0 <= ordinal < devices. Creates no context. */
int tempi_gpu_device_query(int32_t ordinal, tempi_gpu_device *out);

/* ---- the calibrated model -------------------------------------------------------------------- */

/* The class of a message's peer. A peer on this node is NODE if its core shares a last-level cache
 * (LLC) with this rank's core, else OTHER_LLC. tempi measures this while messages are exchanged and
 * takes NODE until it knows. */
enum {
    TEMPI_PEER_SELF = 0,
    TEMPI_PEER_NODE = 1,     /* same node, same LLC */
    TEMPI_PEER_OTHER = 2,    /* another node */
    TEMPI_PEER_OTHER_LLC = 3 /* same node, other LLC */
};

/* The properties that a calibration depends on. */
typedef struct tempi_machine {
    char cpu[128];
    char mpi[256]; /* first line of MPI_Get_library_version */
    char tempi[32];
    int32_t cores;
    char gpu[128];    /* the GPU, for tables of device memory; "": tables of host memory */
    char driver[64];  /* version of its driver; "": unknown */
    int32_t cuda;     /* CUDA version of the driver, 1000 * major + 10 * minor */
    int32_t emulated; /* 1: the GPU is CUDA on the CPU, a test device */
} tempi_machine;

/* Describes this machine with the MPI library whose MPI_Get_library_version is `version`. */
int tempi_machine_describe(const char *version, tempi_machine *out);
/* Adds a device of this process to the description; TEMPI_ERR_UNSUPPORTED: no CUDA driver is
 * loaded. */
int tempi_machine_add_gpu(tempi_machine *machine, int32_t ordinal);
/* Path of its calibration, in TEMPI_CACHE_DIR or else in the user's cache folder. Each GPU has a
 * file of its own beside that of the host. */
int tempi_machine_file(const tempi_machine *machine, char *out, size_t size);

/* Path of the shipped calibration nearest to this machine and library version, used where this
 * machine has none of its own. TEMPI_ERR_UNSUPPORTED: none fits. */
int tempi_shipped_find(const char *version, char *out, size_t size);
/* The file name under which a calibration of this machine would be shipped. */
int tempi_shipped_name(const char *version, char *out, size_t size);
/* For users without a calibration: how long `tempi calibrate` takes and what it brings over that
 * library. */
const char *tempi_calibration_advice(const char *version);

typedef struct tempi_model tempi_model;

/* Maps a file of tables; NULL: *fault gives the reason. */
tempi_model *tempi_model_open(const char *path, const char **fault);
void tempi_model_close(tempi_model *model);
/* The reason why the tables do not fit that machine and, if it has one, its GPU; NULL: they fit. */
const char *tempi_model_mismatch(const tempi_model *model, const tempi_machine *machine);

/* Seconds. `host` is tempi's method: for MPI_Pack and MPI_Unpack the whole call; for a message (one
 * way, the same datatype on both sides) the sum of pack, message and unpack. */
typedef struct tempi_prediction {
    double library;
    double host;
    double pack;
    double message;
    double unpack;
    int32_t ours; /* 1: tempi is predicted to be faster by more than the margin */
} tempi_prediction;

/* TEMPI_ERR_UNSUPPORTED: there are no tables for that shape or peer. `operation`: TEMPI_OP_*;
 * `bytes`: packed size of the message. */
int tempi_model_predict(const tempi_model *model, const tempi_layout *layout, int64_t bytes,
                        int operation, int peer, tempi_prediction *out);
/* Whether the engine would act on that message: 1, 0, or -1 if the built-in rule decides. */
int tempi_model_choice(const tempi_model *model, const tempi_layout *layout, int64_t bytes,
                       int operation, int peer);
/* The same by the built-in rule for the MPI library with that version string: 1 or 0. The size of
 * the type's basic elements is taken as unknown. `peer`: TEMPI_PEER_*, of SEND and RECV. */
int tempi_rule_choice(const char *version, const tempi_layout *layout, int64_t bytes, int operation,
                      int peer);

enum { TEMPI_TABLES_OF_HOST = 0, TEMPI_TABLES_OF_DEVICE = 1, TEMPI_TABLES_OF_MANAGED = 2 };

/* The memory that MPI_Pack writes to and MPI_Unpack reads from. PAGEABLE: pageable host
 * memory, which kernels cannot access. */
enum { TEMPI_PACKED_PINNED = 0, TEMPI_PACKED_DEVICE = 1, TEMPI_PACKED_PAGEABLE = 2 };

/* Seconds by method; negative: the method is not possible, or was not measured. The time of a
 * message is the sum of the three parts; MPI_Pack and MPI_Unpack have one of them. If the bytes go
 * through the host, the peer is assumed to use its best method. */
typedef struct tempi_device_prediction {
    double seconds[TEMPI_METHODS];
    double pack[TEMPI_METHODS];
    double message[TEMPI_METHODS];
    double unpack[TEMPI_METHODS];
    int32_t method; /* the chosen method */
} tempi_device_prediction;

/* Unused members may be 0. */
typedef struct tempi_device_message {
    int64_t bytes;      /* packed */
    int64_t whole;      /* of a message in several memories: its size; `bytes` is one part of it */
    int64_t segments;   /* of such a part: number of its segments in the packed stream */
    int32_t operation;  /* TEMPI_OP_* */
    int32_t peer;       /* TEMPI_PEER_*, of SEND and RECV */
    int32_t packed;     /* TEMPI_PACKED_*, of PACK and UNPACK */
    int32_t memory;     /* TEMPI_TABLES_OF_DEVICE or _MANAGED */
    int32_t misaligned; /* 1: the buffer's address forces smaller words than the layout's own */
    int32_t contiguous; /* 1: the bytes are one run, as in a layout without gaps */
    int32_t cuda_aware; /* 1: the library is CUDA-aware */
} tempi_device_message;

/* TEMPI_ERR_UNSUPPORTED: there are no tables for that shape or peer; the built-in rule decides. */
int tempi_model_predict_device(const tempi_model *model, const tempi_layout *layout,
                               const tempi_device_message *message, tempi_device_prediction *out);
/* The method that the built-in rule chooses for a message of device memory. `contiguous`: the
 * layout has no gaps. */
int tempi_rule_method(int64_t bytes, int32_t contiguous, int32_t cuda_aware);
/* For measurements: forces the method for device memory in this process; -1: automatic. */
void tempi_device_method_force(int32_t method);

/* Path of the tables that this process uses; NULL: the built-in rule decides. */
const char *tempi_model_in_use(void);

/* ---- the engine in this process -------------------------------------------------------------- */

enum { TEMPI_ABI_NONE = 0, TEMPI_ABI_MPICH = 1, TEMPI_ABI_OPENMPI = 2, TEMPI_ABI_STANDARD = 3 };

typedef struct tempi_engine_info {
    int32_t abi;         /* TEMPI_ABI_*; NONE while no MPI is loaded */
    int32_t active;      /* 1: the engine for that ABI is loaded and acting */
    const char *library; /* path of the MPI library, or NULL */
    const char *reason;  /* why not active, or NULL */
    int32_t cuda_aware; /* 1 or 0: whether the library is CUDA-aware; -1: unknown before MPI_Init */
} tempi_engine_info;

/* Searches for the MPI library in this process (as the first MPI call would) and reports the
 * result. */
int tempi_engine_query(tempi_engine_info *out);
/* The MPI library's own function or datum of that name, bypassing tempi; NULL if it has none. */
void *tempi_engine_symbol(const char *name);
/* tempi's entry for that MPI name, as an interposed program calls it; NULL if not exported. */
void *tempi_engine_entry(const char *name);

/* The layout of an MPI datatype handle, created now if it was not in use before. The pointer lives
 * as long as the datatype does. TEMPI_ERR_NO_MPI before MPI_Init. */
int tempi_datatype_layout(uintptr_t datatype, const tempi_layout **out);

/* Orders messages of that communicator after the work in `stream`, and no other work of the
 * program, instead of TEMPI_STREAM_ORDER. Device memory is packed after the work that is in the
 * stream when the send is called, or up to the next MPI call that is no MPI_Isend or MPI_Irecv, and
 * unpacked after the work that is in it when the completing call is made. tempi's kernels may run
 * in the stream itself. `stream` is a CUstream of the program, with cuda.h's numbers for the
 * default ones (1 legacy, 2 per thread); 0: back to the default. It must exist until the messages
 * are complete. While it is captured, messages wait for nothing and become no part of the graph.
 * Duplicates of the communicator do not inherit it. TEMPI_ERR_NO_MPI before MPI_Init. */
int tempi_comm_set_stream(uintptr_t comm, uintptr_t stream);

/* The peer class (TEMPI_PEER_*) that the model uses for messages with that rank of the communicator
 * (of an intercommunicator: of its remote group). A negative rank, such as MPI_ANY_SOURCE: the
 * class of the most distant rank. TEMPI_ERR_NO_MPI before MPI_Init. */
int tempi_comm_peer(uintptr_t comm, int rank, int *out);
/* Probes whether that rank shares a last-level cache with this one. A probe has a result only if
 * the peer has probed since this rank's last probe, so both ranks must probe several times in turn.
 * TEMPI_ERR_NO_MPI before MPI_Init. */
int tempi_comm_probe_locality(uintptr_t comm, int rank);

/* Switches tempi off and on for the calling thread; calls nest. Requests that tempi already tracks
 * are still completed. */
void tempi_disable(void);
void tempi_enable(void);

/* Counters of this process, by index: 0 <= i < tempi_stats_count(). */
int tempi_stats_count(void);
const char *tempi_stats_name(int i);
const char *tempi_stats_help(int i);
uint64_t tempi_stats_value(int i);
void tempi_stats_reset(void);

/* Calls with a derived datatype that tempi left, wholly or in part, to each function other than
 * those of messages and packs (counters of their own say why those were left), by index: 0 <= i <
 * tempi_fallback_count(). Bytes are those of this process's buffers of such a type. A persistent
 * operation is counted when it is created. Files whose view has such a type count with any. */
int tempi_fallback_count(void);
const char *tempi_fallback_name(int i);
uint64_t tempi_fallback_calls(int i);
uint64_t tempi_fallback_bytes(int i);

/* The table of environment variables, by index: 0 <= i < tempi_config_count(). */
int tempi_config_count(void);
const char *tempi_config_name(int i);
const char *tempi_config_help(int i);
const char *tempi_config_value(int i); /* as read from the environment; NULL if unset */

/* The ways in which a collective copies a flow between two processes of a node, by index from 0 on;
 * NULL: there are no more. docs/collectives.md describes them. */
const char *tempi_copy_way_name(int way);
/* For measurements: flows that this process sends, and copies within it, go that way if they can,
 * and nothing is learnt from them; -1: back to trials. */
void tempi_copy_way_force(int way);
/* For tests: so many bytes of long messages of nonblocking collectives wait in shared memory on
 * each communicator, twice a part for each receiver at least; 0: as many as usual. */
void tempi_post_room_assume(int64_t bytes);

/* Whether a block of that layout can go a way, or why not. */
typedef enum tempi_way_limit {
    TEMPI_WAY_POSSIBLE = 0,
    TEMPI_WAY_BLOCK_SHORT = 1, /* the block has too few bytes */
    TEMPI_WAY_RUNS_SHORT = 2,  /* its runs have */
    TEMPI_WAY_IRREGULAR = 3    /* it is not one nest of runs */
} tempi_way_limit;
/* Of `count` elements of a canonical layout in host memory, as the block that is sent (TEMPI_PACK)
 * or received (TEMPI_UNPACK), the only one between two processes. If it, or its runs, are too short
 * *least is the bytes that they need. The system, or the program's memory, may exclude ways too. */
tempi_way_limit tempi_copy_way_check(int way, int direction, const tempi_layout *layout,
                                     int64_t count, int64_t *least);

/* ---- measuring a device ---------------------------------------------------------------------- */

/* One pack or unpack between device memory at `mem` and `packed`, which holds all count *
 * layout->size bytes and is pinned or memory of the same device. The layout is a canonical one. */
typedef struct tempi_device_op {
    const tempi_layout *layout;
    int64_t count;
    void *mem;
    void *packed;
} tempi_device_op;

/* Runs all operations as one batch, like a burst of messages; returns when it is done. They must
 * not overlap. TEMPI_ERR_UNSUPPORTED: there are no kernels for the device, or no CUDA in this
 * process. */
int tempi_device_run(const tempi_device_op *ops, int32_t n, int32_t direction, int32_t device);
/* Runs the same work `loops` times, back to back, timed by CUDA events: *seconds is device time,
 * without time that the host waits for a device that is slower. The work is planned once.
 * *launches (may be NULL) is the number of kernels and copies in one loop. */
int tempi_device_time(const tempi_device_op *ops, int32_t n, int32_t direction, int32_t device,
                      int64_t loops, double *seconds, int32_t *launches);

#ifdef __cplusplus
}
#endif
#endif
