/* The built-in rule: where tempi is expected to beat the MPI library, by library, operation and
 * shape. All such knowledge is in here; on a calibrated machine the tables choose instead
 * (choose/model.h). */
#ifndef TEMPI_CHOOSE_RULE_H
#define TEMPI_CHOOSE_RULE_H

#include "tempi.h"

#include <stdbool.h>

static inline int tempi_direction_of(tempi_operation operation)
{
    return operation == TEMPI_OP_SEND || operation == TEMPI_OP_PACK ? TEMPI_PACK : TEMPI_UNPACK;
}

typedef enum tempi_library {
    TEMPI_LIBRARY_UNKNOWN,
    TEMPI_LIBRARY_MPICH, /* any version, its standard ABI included */
    TEMPI_LIBRARY_OPENMPI4,
    TEMPI_LIBRARY_OPENMPI5,
    TEMPI_LIBRARY_INTEL /* any version, its standard ABI included; tried: 2021.18 */
} tempi_library;

/* Parses the library's version string. */
tempi_library tempi_library_of(const char *version);

/* tempi handles messages of packed size in [first, last] except those in [gap, resume); first >
 * last: none. Messages to the rank itself have to be at least `to_self`. For peers of the class
 * `peer` (TEMPI_PEER_*) it also handles [peer_first, peer_last]. */
typedef struct tempi_window {
    int64_t first;
    int64_t last;
    int64_t gap;
    int64_t resume;
    int64_t to_self;
    int64_t peer_first;
    int64_t peer_last;
    int peer;
} tempi_window;

static inline bool tempi_window_has(tempi_window window, int64_t bytes)
{
    return bytes >= window.first && bytes <= window.last &&
           !(bytes >= window.gap && bytes < window.resume);
}

static inline bool tempi_window_has_peer(tempi_window window, int64_t bytes)
{
    return bytes >= window.peer_first && bytes <= window.peer_last;
}

/* Whether the library has code of its own for the shape, which no calibration times: then the rule
 * chooses for messages on a calibrated machine too. */
bool tempi_rule_is_beyond_tables(const tempi_layout *layout, int64_t element,
                                 tempi_library library);

/* `element`: bytes of the largest predefined type in the datatype; 0: unknown. */
tempi_window tempi_rule_window(const tempi_layout *layout, int64_t element, tempi_library library,
                               tempi_operation operation);

#endif
