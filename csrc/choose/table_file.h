/* The calibrated tables as a file: written by tempi/model/tables.py, mapped here and never copied,
 * so that all ranks of a node share its pages.
 *
 *   header    the machine that was measured, size and checksum of the file
 *   heads     one per table: its quantity, shapes and peer, and the position of its numbers
 *   numbers   doubles, all natural logarithms:
 *             sizes[], runs[], strides[run][], seconds[run][stride][size]
 *
 * The structures, quantities and families are defined once, in tempi/model/_format.py. All is in
 * native byte order: with the other one the magic number does not match. */
#ifndef TEMPI_CHOOSE_TABLE_FILE_H
#define TEMPI_CHOOSE_TABLE_FILE_H

#include "table_format.h"
#include "tempi.h"

#include <stdbool.h>
#include <stddef.h>

enum { TEMPI_TABLE_MOST = 1 << 24 /* largest file, bytes */ };

/* Predictions are accurate to some percent; in a tie the library's way is the simpler one. */
#define TEMPI_MODEL_MARGIN 0.03

/* Tables measured elsewhere (on another machine of this kind, or between ranks of another locality
 * class) are used only for messages, and only where they predict the method that the rule does not
 * choose to be 1.5 times as fast. */
#define TEMPI_FOREIGN_MARGIN 0.33

enum { TEMPI_PEERS = TEMPI_PEER_OTHER_LLC + 1, TEMPI_TABLE_MEMORIES = TEMPI_TABLES_OF_MANAGED + 1 };

struct tempi_model {
    const tempi_table_header *header;
    bool shipped; /* from another machine of this kind */
    /* Host memory. */
    const tempi_table_head *tables[TEMPI_QUANTITIES][TEMPI_FAMILIES][TEMPI_PEERS];
    /* Device memory, managed memory. */
    const tempi_table_head *device[2][TEMPI_QUANTITIES][TEMPI_FAMILIES][TEMPI_PEERS];
};

/* A point to interpolate at, as logarithms of bytes. */
typedef struct tempi_place {
    double size, run, stride;
} tempi_place;

/* Indexes the tables of a valid file. Kinds unknown to this engine are skipped. */
void tempi_table_index(struct tempi_model *model);

/* Marks the model as shipped: peer classes that were not measured have no tables, so the rule
 * chooses there. */
void tempi_table_only_measured(struct tempi_model *model);

/* Seconds at that point, interpolated between the logarithms and clamped at the table's edges;
 * above the largest size they grow in proportion to it. */
double tempi_table_at(const struct tempi_model *model, const tempi_table_head *table,
                      tempi_place place);

/* Seconds of a quantity that does not involve a peer; 0: no table. */
double tempi_model_part(const struct tempi_model *model, tempi_quantity quantity,
                        const tempi_layout *layout, int64_t bytes);

/* Whether the tables for messages to that class of peers are those of another one, because it was
 * not measured. */
bool tempi_table_stands_in(const struct tempi_model *model, const tempi_layout *layout,
                           int operation, int peer);

/* Whether every term of the prediction has a table. */
bool tempi_table_covers(const struct tempi_model *model, const tempi_layout *layout, int operation,
                        int peer);

/* Why the tables do not fit the GPU of that machine; NULL: they do. */
const char *tempi_table_gpu_mismatch(const tempi_table_header *header,
                                     const tempi_machine *machine);

/* FNV-1a, 64 bits. */
uint64_t tempi_table_checksum(const void *data, size_t bytes);

/* Why `data` is not a valid table file, in words; NULL: it is valid. */
const char *tempi_table_fault(const void *data, size_t bytes);

#endif
