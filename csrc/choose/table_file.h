/* The calibrated tables as a file: made by tempi/model/tables.py, mapped here and never copied, so
 * that all ranks of a node share its pages.
 *
 *   header    what it was measured on, size and checksum of the file
 *   heads     one a table: which quantity, for which shapes and peer, and where its numbers are
 *   numbers   doubles, all natural logarithms: sizes[], runs[], strides[run][],
 * seconds[run][stride][size]
 *
 * Everything is in the machine's own byte order: the magic number of another one does not match.
 */
#ifndef TEMPI_MODEL_TABLE_H
#define TEMPI_MODEL_TABLE_H

#include "tempi.h"

#include <stdbool.h>
#include <stddef.h>

enum { TEMPI_TABLE_MAGIC = 0x4C444D54, TEMPI_TABLE_FORMAT = 3, TEMPI_TABLE_MOST = 1 << 24 };

/* What a table tells; the numbers are part of the file. */
typedef enum tempi_quantity {
    TEMPI_LIBRARY_PACK, /* MPI_Pack by the library */
    TEMPI_LIBRARY_UNPACK,
    TEMPI_OWN_PACK, /* MPI_Pack by tempi */
    TEMPI_OWN_UNPACK,
    TEMPI_STAGE_PACK,      /* into staging, with a message behind it */
    TEMPI_STAGE_UNPACK,    /* out of staging, with a message before it */
    TEMPI_CONTIGUOUS,      /* a message of the bytes that such a pack left in staging; by peer */
    TEMPI_LIBRARY_MESSAGE, /* a message with the datatype on both sides; by peer */
    /* of device memory, from here on; each from the call until it is done */
    TEMPI_DEVICE_PACKS, /* kernels into a device buffer */
    TEMPI_DEVICE_UNPACKS,
    TEMPI_MAPPED_PACKS, /* kernels into mapped host memory */
    TEMPI_MAPPED_UNPACKS,
    TEMPI_COPY_OUT, /* packed bytes to pinned host memory */
    TEMPI_COPY_IN,
    TEMPI_LAUNCH,         /* nothing launched and waited for: in each of the six above once */
    TEMPI_PINNED_MESSAGE, /* a message of bytes in pinned memory; by peer */
    TEMPI_DEVICE_MESSAGE, /* a message of bytes in device memory, where the library takes them; by
                             peer */
    TEMPI_DEVICE_LIBRARY, /* a message with the datatype in device memory, likewise; by peer */
    TEMPI_DEVICE_LIBRARY_PACK, /* MPI_Pack of device memory by the library, likewise: into device
                                  memory */
    TEMPI_DEVICE_LIBRARY_UNPACK,
    TEMPI_MAPPED_LIBRARY_PACK, /* the same into pinned memory */
    TEMPI_MAPPED_LIBRARY_UNPACK,
    TEMPI_QUANTITIES
} tempi_quantity;

typedef enum tempi_family {
    TEMPI_FAMILY_REGULAR,  /* runs at equal distance within an element */
    TEMPI_FAMILY_ELEMENTS, /* one run an element */
    TEMPI_FAMILY_TRANSPOSED,
    TEMPI_FAMILY_IRREGULAR,
    TEMPI_FAMILY_ALIASED, /* regular, but the stride is a multiple of 512 bytes: the runs share few
                             sets of the cache. Its tables are factors on those of regular ones: by
                             the lines that the runs lie on, for a size, the run, and the stride's
                             power of two */
    /* No shape's own, but corrections as those are: */
    TEMPI_FAMILY_NESTED, /* seconds that each row of a regular shape takes, beside its runs */
    TEMPI_FAMILY_FIELDS, /* a factor on elements whose run does not begin where they do */
    TEMPI_FAMILY_VARIED, /* a factor on irregular shapes with runs of different lengths */
    /* Of device memory: */
    TEMPI_FAMILY_SHIFTED, /* regular, at an address that allows smaller words only */
    TEMPI_FAMILIES
} tempi_family;

/* Predictions are good to some percent; between equals the library's way is the plainer one. */
#define TEMPI_MODEL_MARGIN 0.03

enum { TEMPI_PEERS = TEMPI_PEER_FAR + 1, TEMPI_TABLE_MEMORIES = TEMPI_TABLES_OF_MANAGED + 1 };

typedef struct tempi_table_header {
    uint32_t magic;
    uint32_t format;
    uint64_t bytes;    /* of the whole file */
    uint64_t checksum; /* of all that follows */
    double call;       /* seconds that the decision adds to a pack or an unpack of a message */
    int32_t cores;
    uint32_t heads;
    char tempi[32];
    char cpu[128];
    char mpi[256];
    char gpu[128]; /* as in tempi_machine */
    char driver[64];
    int32_t cuda;
    int32_t emulated;
} tempi_table_header;

typedef struct tempi_table_head {
    int32_t quantity;
    int32_t family;
    int32_t peer;   /* TEMPI_PEER_*; 0 where the quantity has none */
    int32_t memory; /* TEMPI_TABLES_OF_* */
    int32_t nsizes, nruns, nstrides;
    uint32_t first; /* of the numbers, in doubles from the start of the file */
} tempi_table_head;

struct tempi_model {
    const tempi_table_header *header;
    bool shipped; /* of another machine of this kind: it chooses for messages only, and where it is
                     sure */
    const tempi_table_head
        *tables[TEMPI_QUANTITIES][TEMPI_FAMILIES][TEMPI_PEERS]; /* of host memory */
    const tempi_table_head
        *device[2][TEMPI_QUANTITIES][TEMPI_FAMILIES][TEMPI_PEERS]; /* device, managed */
};

/* A point between those measured, as logarithms of bytes. */
typedef struct tempi_place {
    double size, run, stride;
} tempi_place;

/* Finds the tables of a file that has no fault. Kinds that this engine does not know are passed
 * over. */
void tempi_table_index(struct tempi_model *model);

/* Takes it as a shipped one: classes of peers that were not measured have no tables, so that the
 * rule chooses there. */
void tempi_table_only_measured(struct tempi_model *model);

/* Seconds at that place, interpolated between the logarithms and clamped at the table's edges;
 * above the largest size they grow with it. */
double tempi_table_at(const struct tempi_model *model, const tempi_table_head *table,
                      tempi_place place);

/* Seconds of a quantity that no peer has a part in; 0: there is no table. */
double tempi_model_part(const struct tempi_model *model, tempi_quantity quantity,
                        const tempi_layout *layout, int64_t bytes);

/* Whether there is a table for every part of what is to be predicted. */
bool tempi_table_covers(const struct tempi_model *model, const tempi_layout *layout, int operation,
                        int peer);

/* Why the tables are not for the GPU of that machine; NULL: they are. */
const char *tempi_table_gpu_mismatch(const tempi_table_header *header,
                                     const tempi_machine *machine);

/* FNV-1a, 64 bits. */
uint64_t tempi_table_checksum(const void *data, size_t bytes);

/* Tells why `data` is no such file, in words; NULL: it is one. */
const char *tempi_table_fault(const void *data, size_t bytes);

#endif
