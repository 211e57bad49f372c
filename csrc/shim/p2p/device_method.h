/* Chooses the method for device memory: by a setting, else by the calibrated tables, else by the
 * built-in rule. */
#ifndef TEMPI_SHIM_DEVICE_METHOD_H
#define TEMPI_SHIM_DEVICE_METHOD_H

#include "pack/parts.h"
#include "shim/p2p/message.h"

/* Method of a message; TEMPI_METHOD_LIBRARY: the library carries it. */
tempi_method tempi_method_of_message(const tempi_message *message, const tempi_peer *peer);

/* Method of MPI_Pack or MPI_Unpack between memory of that device and memory of the kind `packed`
 * (TEMPI_PACKED_*). TEMPI_METHOD_LIBRARY (the library does it) only if `may`. */
tempi_method tempi_method_of_packing(const tempi_message *message, int packed, bool may);

/* Sets the method of each part of a message in several memories, packed in pinned memory. */
void tempi_method_of_parts(const tempi_message *message, tempi_parts *parts);

/* Counts the operation, or each of its parts, by device method. */
void tempi_method_note(const tempi_op *op);

#endif
