/* How what lies in device memory is carried: as a setting says, else by the calibrated tables, else
 * by the built-in rule. */
#ifndef TEMPI_SHIM_METHOD_H
#define TEMPI_SHIM_METHOD_H

#include "pack/parts.h"
#include "shim/p2p/message.h"

/* Of a message; TEMPI_METHOD_LIBRARY: the library's. */
tempi_method tempi_method_of_message(const tempi_message *message, const tempi_peer *peer);

/* Of MPI_Pack or MPI_Unpack between that device's memory and memory of another kind,
 * TEMPI_PACKED_*; TEMPI_METHOD_LIBRARY: the library's, and only if it `may`. */
tempi_method tempi_method_of_packing(const tempi_message *message, int packed, bool may);

/* Sets the method of each part of a message of several memories whose packed bytes are in pinned
 * memory. */
void tempi_method_of_parts(const tempi_message *message, tempi_parts *parts);

/* Counts what devices do by its methods. */
void tempi_method_note(const tempi_op *op);

#endif
