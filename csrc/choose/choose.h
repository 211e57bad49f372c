/* One query in, one method out.
 *
 * What is asked about is a message, or a call of MPI_Pack or MPI_Unpack, of one datatype. In this
 * order:
 *
 *   settings       TEMPI_FORCE, TEMPI_METHOD, and what the library is known to do wrong: no choice
 *   trials         MPI_Pack and MPI_Unpack of host memory: timed on the program's own calls
 *   tables         of a calibration (model.h), corrected by real work if asked for
 *   built-in rule  rule.h for host memory, device_rule.h for a device's
 *
 * All that is remembered for a type is in its chooser. */
#ifndef TEMPI_CHOOSE_CHOOSE_H
#define TEMPI_CHOOSE_CHOOSE_H

#include "base/config.h"
#include "choose/autotune.h"
#include "choose/device_choice.h"
#include "choose/model.h"
#include "choose/online_tuning.h"
#include "choose/rule.h"

/* Of one datatype and MPI library. */
typedef struct tempi_chooser {
    const tempi_layout *layout; /* the type's, which holds it */
    unsigned quirks; /* operations, 1 << TEMPI_OP_*, that the library does otherwise than the type
                        map says */
    unsigned
        modelled; /* TEMPI_MODEL_BIT: where calibrated tables choose; elsewhere the windows do */
    tempi_window windows[TEMPI_OPERATIONS];
    tempi_choices choices[TEMPI_OPERATIONS][TEMPI_PEERS];
    tempi_trials *trials[TEMPI_OP_UNPACK + 1]; /* made when first needed */
    tempi_device_choices *on_devices;          /* made when first needed */
} tempi_chooser;

/* `element`: bytes of the largest predefined type in it; `library`: TEMPI_LIBRARY_UNKNOWN where the
 * rule leaves all to it. */
void tempi_chooser_init(tempi_chooser *chooser, const tempi_layout *layout, int64_t element,
                        tempi_library library, unsigned quirks);
/* For a duplicate: what was found out by calls is not copied. */
void tempi_chooser_copy(tempi_chooser *to, const tempi_chooser *from);
void tempi_chooser_clear(tempi_chooser *chooser);

/* The other rank of a message: asked for only where the answer matters. */
typedef struct tempi_query_peer {
    int (*class)(const void *whom, int64_t bytes); /* TEMPI_PEER_* */
    bool (*is_self)(const void *whom);
} tempi_query_peer;

typedef struct tempi_query {
    tempi_operation operation;
    int64_t bytes; /* packed */
    const tempi_query_peer *peer;
    const void *whom;                 /* for `peer` */
    const tempi_device_query *device; /* NULL: host memory */
    tempi_sample *sample; /* of MPI_Pack and MPI_Unpack on host memory: started if the call is to be
                             timed, to be ended by tempi_autotune_end; NULL for messages */
} tempi_query;

static inline bool tempi_chooser_has_quirk(const tempi_chooser *chooser, tempi_operation operation)
{
    return chooser->quirks >> operation & 1;
}

/* The longer ways of tempi_choose. */
bool tempi_choose_local(tempi_chooser *chooser, tempi_operation operation, int64_t bytes,
                        tempi_sample *sample);
tempi_method tempi_choose_on_device(tempi_chooser *chooser, const tempi_query *query);

/* By the built-in rule, for a message to a peer of that class. */
static inline bool tempi_choose_by_rule(tempi_window window, const tempi_query *q, int class)
{
    if (tempi_window_has(window, q->bytes))
        return q->bytes >= window.to_self || !q->peer->is_self(q->whom);
    return class == TEMPI_PEER_FAR && tempi_window_has_far(window, q->bytes);
}

/* Asks for the peer's class only where it matters. */
static inline bool tempi_choose_without_tables(tempi_window window, const tempi_query *q)
{
    if (tempi_window_has(window, q->bytes) || !tempi_window_has_far(window, q->bytes))
        return tempi_choose_by_rule(window, q, TEMPI_PEER_NODE);
    return q->peer->class(q->whom, q->bytes) == TEMPI_PEER_FAR;
}

static inline bool tempi_choose_message(tempi_chooser *chooser, const tempi_query *q)
{
    const tempi_window window = chooser->windows[q->operation];
    if (chooser->modelled == 0)
        return tempi_choose_without_tables(window, q);
    const int class = q->peer->class(q->whom, q->bytes);
    if (!(chooser->modelled & TEMPI_MODEL_BIT(q->operation, class)))
        return tempi_choose_without_tables(window, q);
    tempi_choices *choices = &chooser->choices[q->operation][class];
    if (tempi_online_tuning)
        return tempi_tuning_acts(chooser->layout, q->operation, class, q->bytes, choices);
    return tempi_model_acts(chooser->layout, q->operation, class, q->bytes,
                            tempi_choose_by_rule(window, q, class), choices);
}

/* TEMPI_METHOD_LIBRARY, TEMPI_METHOD_HOST, or one of a device's. `chooser` may be NULL for device
 * memory: then nothing is remembered. */
static inline tempi_method tempi_choose(tempi_chooser *chooser, const tempi_query *query)
{
    if (query->device)
        return tempi_choose_on_device(chooser, query);
    const bool ours = query->operation <= TEMPI_OP_UNPACK
                          ? tempi_choose_local(chooser, query->operation, query->bytes,
                                               query->sample)
                          : tempi_choose_message(chooser, query);
    return ours ? TEMPI_METHOD_HOST : TEMPI_METHOD_LIBRARY;
}

#endif
