/* The device tables loaded in this process, and the method that they choose for a message. */
#ifndef TEMPI_CHOOSE_DEVICE_CHOICE_H
#define TEMPI_CHOOSE_DEVICE_CHOICE_H

#include "tempi.h"

#include <stdbool.h>

/* The cached choices of one type; allocated by its first message from device memory. */
typedef struct tempi_device_choices tempi_device_choices;
void tempi_device_choices_free(tempi_device_choices *choices);

/* The part of a query that describes device memory. */
typedef struct tempi_device_query {
    /* `bytes`, `operation` and `peer` are the query's; `misaligned` is computed; `contiguous`: all
     * bytes are one run, which needs no kernel; `cuda_aware`: the library is CUDA-aware. */
    tempi_device_message about;
    const tempi_layout *layout;
    const void *address;      /* the buffer */
    const tempi_layout *part; /* the device's part of a message in several memories; NULL: all */
    int device;               /* ordinal */
    bool dense;               /* the layout has no gaps */
    bool few_rows;            /* the driver copies it to and from pinned memory as it is */
    bool may_leave;           /* the library can take the message */
} tempi_device_query;

/* Set by tempi_model_start: the tables that TEMPI_MODEL names, or NULL; `log_refused`: warn of
 * refused files. */
void tempi_model_devices_start(const tempi_machine *host, const tempi_model *named,
                               bool log_refused);

/* The TEMPI_METHOD_* chosen by the tables of that device; -1: no tables, or none for this message.
 * Without a cache each call predicts anew. */
int tempi_device_choose(tempi_device_choices **cache, const tempi_layout *layout,
                        const tempi_device_query *ask);

/* The method of the smallest prediction; the library only if `may_leave`, and if no method is well
 * below it. -1: nothing was predicted. (predict_device.c) */
int tempi_device_least(const tempi_device_prediction *prediction, bool may_leave);
/* Packed bytes of the largest message in the calibration. */
int64_t tempi_device_largest(const tempi_model *model);

#endif
