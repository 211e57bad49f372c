/* One query in, one method out.
 *
 * A query describes a message, or a call of MPI_Pack or MPI_Unpack, of one datatype. It is answered
 * by the first of these that applies:
 *
 *   settings       TEMPI_FORCE, TEMPI_METHOD and the library's quirks leave no choice
 *   trials         host memory: all methods timed on the program's own calls (autotune.h,
 *                  message_trials.h)
 *   tables         of a calibration (model.h), corrected online if enabled
 *   built-in rule  rule.h for host memory, device_rule.h for device memory
 *
 * All state of a type is in its chooser. */
#ifndef TEMPI_CHOOSE_CHOOSE_H
#define TEMPI_CHOOSE_CHOOSE_H

#include "base/config.h"
#include "choose/autotune.h"
#include "choose/device_choice.h"
#include "choose/message_trials.h"
#include "choose/model.h"
#include "choose/online_tuning.h"
#include "choose/repeated.h"
#include "choose/rule.h"

/* The state of one datatype with one MPI library. */
typedef struct tempi_chooser {
    tempi_repeated repeated[TEMPI_OPERATIONS]; /* of messages in host memory */
    const tempi_layout *layout;                /* owned by the type */
    /* Operations (1 << TEMPI_OP_*) for which the library deviates from the type map. */
    unsigned quirks;
    /* TEMPI_MODEL_BITs for which calibrated tables choose; elsewhere the windows do. */
    unsigned modelled;
    uint32_t shape; /* a hash of the properties that both sides of a message have in common */
    tempi_window windows[TEMPI_OPERATIONS];
    tempi_choices choices[TEMPI_OPERATIONS][TEMPI_PEERS];
    tempi_trials *trials[TEMPI_OP_UNPACK + 1]; /* made when first needed */
    tempi_device_choices *on_devices;          /* made when first needed */
} tempi_chooser;

/* `element`: bytes of the largest predefined type in the datatype. The rule for an unknown library
 * is MPICH's, as most others are made of it; trials correct it (message_trials.h, autotune.h). */
void tempi_chooser_init(tempi_chooser *chooser, const tempi_layout *layout, int64_t element,
                        tempi_library library, unsigned quirks);
/* For a duplicate of the type: results of trials are not copied. */
void tempi_chooser_copy(tempi_chooser *to, const tempi_chooser *from);
void tempi_chooser_clear(tempi_chooser *chooser);

/* The peer of a message: queried only where the answer matters. */
typedef struct tempi_query_peer {
    int (*class)(const void *whom, int64_t bytes); /* TEMPI_PEER_* */
    bool (*is_self)(const void *whom);
} tempi_query_peer;

typedef struct tempi_query {
    tempi_operation operation;
    int64_t bytes; /* packed size */
    const tempi_query_peer *peer;
    const void *whom;                 /* argument of `peer` */
    const tempi_device_query *device; /* NULL: host memory */
    /* For MPI_Pack and MPI_Unpack on host memory: started if the call is timed; the caller ends it
     * by tempi_autotune_end. Unused for messages. */
    tempi_sample *sample;
    /* For messages of host memory that tempi carries: set to true if they should be streamed
     * (pack/pack.h: tempi_op). */
    bool *streamed;
    unsigned *word; /* set to the index of the word that may change the method (message_trials.h) */
    unsigned passed; /* messages like it that were not examined since the last one (repeated.h) */
    bool repeats;    /* it was examined often enough to pass */
    bool posted;     /* a message that is posted now; false: the choice is kept for later ones */
} tempi_query;

static inline bool tempi_chooser_has_quirk(const tempi_chooser *chooser, tempi_operation operation)
{
    return chooser->quirks >> operation & 1;
}

/* Shorter messages are as fast either way, and are not tried. */
enum { TEMPI_TRIED_FIRST = 64 };

/* Whether trials may change the method of messages of so many bytes, but for that of the peer. */
static inline bool tempi_choose_is_tried(const tempi_chooser *chooser, tempi_operation operation,
                                         int64_t bytes)
{
    return tempi_passing.trials && bytes >= TEMPI_TRIED_FIRST && !tempi_online_tuning &&
           !tempi_chooser_has_quirk(chooser, operation);
}

/* The slow paths of tempi_choose. */
bool tempi_choose_local(tempi_chooser *chooser, tempi_operation operation, int64_t bytes,
                        tempi_sample *sample);
tempi_method tempi_choose_on_device(tempi_chooser *chooser, const tempi_query *query);
bool tempi_choose_by_trial(tempi_chooser *chooser, const tempi_query *query);

/* The built-in rule's choice for a message to a peer of that class. */
static inline bool tempi_choose_by_rule(tempi_window window, const tempi_query *q, int class)
{
    if (tempi_window_has(window, q->bytes))
        return q->bytes >= window.to_self || !q->peer->is_self(q->whom);
    return class == window.peer && tempi_window_has_peer(window, q->bytes);
}

/* Queries the peer's class only where it matters. */
static inline bool tempi_choose_without_tables(tempi_window window, const tempi_query *q)
{
    if (tempi_window_has(window, q->bytes) || !tempi_window_has_peer(window, q->bytes))
        return tempi_choose_by_rule(window, q, TEMPI_PEER_NODE);
    return q->peer->class(q->whom, q->bytes) == window.peer;
}

static inline bool tempi_choose_untried(tempi_chooser *chooser, const tempi_query *q)
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

static inline bool tempi_choose_message(tempi_chooser *chooser, const tempi_query *q)
{
    if (tempi_passing.trials)
        return tempi_choose_by_trial(chooser, q);
    return tempi_choose_untried(chooser, q);
}

/* Whether tempi does a call of MPI_Pack or MPI_Unpack on host memory. */
static inline bool tempi_choose_packing(tempi_chooser *chooser, tempi_operation operation,
                                        int64_t bytes, tempi_sample *sample)
{
    const tempi_choices *choices = &chooser->choices[operation][0];
    if (!tempi_online_tuning && tempi_autotune_is_settled(choices, bytes))
        return tempi_autotune_choice(choices, bytes);
    return tempi_choose_local(chooser, operation, bytes, sample);
}

/* Returns TEMPI_METHOD_LIBRARY, TEMPI_METHOD_HOST or a device method. `chooser` may be NULL for
 * device memory: then nothing is cached. */
static inline tempi_method tempi_choose(tempi_chooser *chooser, const tempi_query *query)
{
    if (query->device)
        return tempi_choose_on_device(chooser, query);
    const bool ours = query->operation <= TEMPI_OP_UNPACK
                          ? tempi_choose_packing(chooser, query->operation, query->bytes,
                                                 query->sample)
                          : tempi_choose_message(chooser, query);
    return ours ? TEMPI_METHOD_HOST : TEMPI_METHOD_LIBRARY;
}

/* The method of a posted message in host memory that need not be examined again, TEMPI_MESSAGE_*;
 * TEMPI_MESSAGE_USUAL: it must. `key` names the message (repeated.h). */
static inline int tempi_choose_again(tempi_chooser *chooser, tempi_operation operation,
                                     uint64_t key)
{
    enum {
        ANY = 1 << TEMPI_MESSAGE_LIBRARY | 1 << TEMPI_MESSAGE_OWN | 1 << TEMPI_MESSAGE_STREAMED
    };
    return tempi_repeated_pass(&chooser->repeated[operation], key, ANY);
}

/* Examines such a message, and notes its method for those like it. Whether tempi carries it; sets
 * q->word and q->passed. */
bool tempi_choose_noted(tempi_chooser *chooser, tempi_query *q, uint64_t key);

#endif
