/* Tables of device memory in this process, and the method that they choose for a message. */
#ifndef TEMPI_MODEL_DEVICES_H
#define TEMPI_MODEL_DEVICES_H

#include "tempi.h"

#include <stdbool.h>

/* What was chosen for one type; allocated by the first message of it from device memory. */
typedef struct tempi_device_choices tempi_device_choices;
void tempi_device_choices_free(tempi_device_choices *choices);

/* What a query says of device memory. */
typedef struct tempi_device_query {
    /* `bytes`, `operation` and `peer` are the query's, `shifted` is found out; `contiguous`: all
     * the bytes are one run, which needs no kernel; `aware`: the library takes device addresses. */
    tempi_device_message about;
    const tempi_layout *layout;
    const void *address;      /* of the buffer */
    const tempi_layout *part; /* the device's part of a message of several memories; NULL: all */
    int device;               /* ordinal */
    bool dense;               /* the layout has no gaps */
    bool may_leave;           /* the library is a way */
} tempi_device_query;

/* What tempi_model_start found: the tables that TEMPI_MODEL names or NULL, and whether refusals are
 * told. */
void tempi_model_devices_start(const tempi_machine *host, const tempi_model *named, bool tells);

/* TEMPI_METHOD_*, by the tables of that device; -1: it has none, or none for this message. Without
 * a cache it is predicted anew each time. */
int tempi_device_choose(tempi_device_choices **cache, const tempi_layout *layout,
                        const tempi_device_query *ask);

/* The least of what was predicted; the library only where that may be, and where nobody is well
 * below it. -1: nothing was. (predict_device.c) */
int tempi_device_least(const tempi_device_prediction *prediction, bool may_leave);
/* Packed bytes of the largest message that was measured. */
int64_t tempi_device_largest(const tempi_model *model);

#endif
