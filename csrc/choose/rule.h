/* The built-in rule: where tempi is expected to beat the MPI library, by library, operation and
 * shape. The only place that holds such knowledge; where this machine is calibrated its tables
 * choose instead (choose/model.h). */
#ifndef TEMPI_MODEL_RULE_H
#define TEMPI_MODEL_RULE_H

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
    TEMPI_LIBRARY_OPENMPI5
} tempi_library;

/* By what the library says of itself. */
tempi_library tempi_library_of(const char *version);

/* tempi acts on messages of packed size in [first, last], but for those in [gap, resume); first >
 * last: never. What goes to oneself has to be `to_self` at least. Between far ranks of a node
 * (TEMPI_PEER_FAR) it acts on those in [far_first, far_last] as well. */
typedef struct tempi_window {
    int64_t first;
    int64_t last;
    int64_t gap;
    int64_t resume;
    int64_t to_self;
    int64_t far_first;
    int64_t far_last;
} tempi_window;

static inline bool tempi_window_has(tempi_window window, int64_t bytes)
{
    return bytes >= window.first && bytes <= window.last &&
           !(bytes >= window.gap && bytes < window.resume);
}

static inline bool tempi_window_has_far(tempi_window window, int64_t bytes)
{
    return bytes >= window.far_first && bytes <= window.far_last;
}

/* `element`: bytes of the largest predefined type that it is made of; 0: not known. */
tempi_window tempi_rule_window(const tempi_layout *layout, int64_t element, tempi_library library,
                               tempi_operation operation);

#endif
