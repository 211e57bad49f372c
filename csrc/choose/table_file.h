/* The calibrated tables as a file: made by tempi/model/tables.py, mapped here and never copied, so
 * that all ranks of a node share its pages.
 *
 *   header    what it was measured on, size and checksum of the file
 *   heads     one a table: which quantity, for which shapes and peer, and where its numbers are
 *   numbers   doubles, all natural logarithms: sizes[], runs[], strides[run][],
 * seconds[run][stride][size]
 *
 * The structures, quantities and families are written once, in tempi/model/_format.py. Everything
 * is in the machine's own byte order: the magic number of another one does not match.
 */
#ifndef TEMPI_MODEL_TABLE_H
#define TEMPI_MODEL_TABLE_H

#include "table_format.h"
#include "tempi.h"

#include <stdbool.h>
#include <stddef.h>

enum { TEMPI_TABLE_MOST = 1 << 24 /* bytes of a file */ };

/* Predictions are good to some percent; between equals the library's way is the plainer one. */
#define TEMPI_MODEL_MARGIN 0.03

enum { TEMPI_PEERS = TEMPI_PEER_FAR + 1, TEMPI_TABLE_MEMORIES = TEMPI_TABLES_OF_MANAGED + 1 };

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
